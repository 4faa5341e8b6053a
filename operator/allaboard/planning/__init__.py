"""Plans the gangs that are due, one round after another: which gangs are placed, and where their members go."""
