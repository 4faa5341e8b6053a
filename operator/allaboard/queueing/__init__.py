"""The queue of gangs: it decides which gang is attempted next, and when a refused gang is attempted again."""
