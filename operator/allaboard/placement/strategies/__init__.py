"""Placement strategies: the protocol, the shipped strategies, and the checks that keep a faulty strategy from doing harm."""
