"""The checks between what is staged and what is published."""
