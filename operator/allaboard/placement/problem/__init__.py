"""The problem of placing a gang as arrays, the cost of a placement, and the plan that a search returns."""
