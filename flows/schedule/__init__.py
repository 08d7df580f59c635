"""Which partition a run is for, and when it is due."""
