"""Merge staged parts into the rows to publish, with one type per column."""
