"""The kinds of sink, one file per kind."""
