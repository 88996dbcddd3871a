"""Views of data for people: contact sheets and tables of batches, statistics of sources."""
