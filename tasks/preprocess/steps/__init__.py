"""The kinds of step, one file per kind."""
