"""Models, one file each, and the worker that runs them."""
