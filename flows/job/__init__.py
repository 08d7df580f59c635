"""Job files: their model, how they are loaded, and their error messages."""
