"""Placement strategies: the protocol, the strategies that are shipped, and the checks that keep a faulty one from doing harm."""
