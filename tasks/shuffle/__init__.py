"""The order in which units are read."""
