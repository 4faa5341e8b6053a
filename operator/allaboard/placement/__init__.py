"""The search for a placement of a whole gang. Pure: same input, same plan."""
