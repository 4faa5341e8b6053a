"""Everything that is remembered of a gang, in one record; each part of a record has one writer."""
