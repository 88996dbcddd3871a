"""Many batches at once: one contract over all crews, the fault matrix, the ways to end."""
