"""A gang and a cluster in numbers, what a placement of them costs, and the plan that answers."""
