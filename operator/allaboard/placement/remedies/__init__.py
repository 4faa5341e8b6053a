"""Finds why a gang was refused, and what would let the gang fit."""
