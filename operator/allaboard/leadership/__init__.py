"""The election of the leading replica, the fencing of an earlier leader's binds, and the capacity reserved for these binds."""
