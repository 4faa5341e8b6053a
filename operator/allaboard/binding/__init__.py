"""Bind all members of a gang or none, and undo partial binds; only the present leader does that."""
