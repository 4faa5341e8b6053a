"""Threads and processes of the program, and slices of work that let other tasks of the event loop run."""
