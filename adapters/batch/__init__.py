"""One batch: which samples, in which order, and the recipe that makes it of them."""
