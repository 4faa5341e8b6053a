"""Who belongs to which gang, and how far each gang has come."""
