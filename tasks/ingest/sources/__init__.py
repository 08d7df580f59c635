"""The kinds of source, one file per kind."""
