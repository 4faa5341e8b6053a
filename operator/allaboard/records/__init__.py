"""One record for each gang holds all that is remembered of it; each part of a record has one writer."""
