"""The gangs, the members of each, and how far each gang has come."""
