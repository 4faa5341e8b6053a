"""What would make room for a gang that can't be placed."""
