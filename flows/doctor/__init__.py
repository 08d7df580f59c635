"""`overnight doctor`: check everything that a run needs."""
