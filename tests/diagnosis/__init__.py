"""Where the time goes: planted bottlenecks are found."""
