"""Solvers that place one gang, each the best one for some problems, and the search that chooses among them."""
