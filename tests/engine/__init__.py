"""Many batches at once: one contract over all executors, the fault matrix, the ways to end."""
