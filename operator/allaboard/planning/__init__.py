"""Searches for placements of the gangs that are due, one planning round after another."""
