"""One batch: its samples, their order, and the plan that makes it."""
