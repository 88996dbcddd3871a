"""One process of a job each, which a test starts several times."""
