"""From staged parts to the rows and types that are published."""
