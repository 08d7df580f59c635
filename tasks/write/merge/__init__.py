"""From staged parts to the published rows and types."""
