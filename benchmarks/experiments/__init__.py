"""What the rows of each experiment run, and the sweeps and ratios made of such rows."""
