"""Ways to place one gang, each better at some problems, and the search that chooses among them."""
