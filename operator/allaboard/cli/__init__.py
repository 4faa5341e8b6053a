"""The allaboard command, which is also kubectl-allaboard."""
