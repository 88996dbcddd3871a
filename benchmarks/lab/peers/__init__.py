"""The loaders of others, one file for each, all of which do the same work on pictures."""
