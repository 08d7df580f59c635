"""The kinds of sink, one file a kind."""
