"""Places gangs together that contend for the same slots."""
