"""File formats: what one file holds, with exact values and clear errors."""
