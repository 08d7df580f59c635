"""Expressions over columns: the parser and its functions."""
