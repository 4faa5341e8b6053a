"""Bind all members of a gang or none, and undo a partial bind; only as the present leader."""
