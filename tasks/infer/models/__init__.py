"""The kinds of model, one file a kind."""
