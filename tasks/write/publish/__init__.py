"""The atomic publish, its audit and its receipt."""
