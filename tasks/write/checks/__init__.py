"""The checks between staging and publishing."""
