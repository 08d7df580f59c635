"""The kinds of step, one file a kind."""
