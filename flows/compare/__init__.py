"""Compare two ways to compute the same rows: two settings, two jobs, or two published partitions."""
