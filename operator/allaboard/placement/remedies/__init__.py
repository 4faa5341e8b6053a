"""Finds why a gang was refused, and what would let it fit."""
