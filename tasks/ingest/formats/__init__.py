"""File formats: the content of one file, with exact values and clear errors."""
