"""Decides about one gang after another, carries the decisions out, and finishes or releases partially bound gangs."""
