"""Which replica leads: the lease, fencing of an earlier leader's binds, and what a new leader reserves for them."""
