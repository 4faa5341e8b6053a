"""Solvers that place one gang, each of which is the best for some problems, and the search that chooses among them."""
