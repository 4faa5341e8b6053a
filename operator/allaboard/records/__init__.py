"""What is remembered of each gang: one record, whose parts have one writer each."""
