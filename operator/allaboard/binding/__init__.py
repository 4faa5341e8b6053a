"""Binds all members of a gang or none, and takes back what was bound in part; by whoever leads, and nobody who led before."""
