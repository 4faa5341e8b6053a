"""Threads, processes, and giving way to the event loop: what the program runs on."""
