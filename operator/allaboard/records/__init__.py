"""The records of gangs: all that the scheduler remembers of each gang between attempts."""
