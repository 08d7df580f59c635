"""The kinds of source, one file a kind."""
