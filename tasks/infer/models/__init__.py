"""The kinds of model, one file per kind."""
