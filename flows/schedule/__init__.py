"""The partition of each run, and the times at which it is due."""
