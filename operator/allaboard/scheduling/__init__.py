"""Which gang is next, and the all-or-none transaction that binds it."""
