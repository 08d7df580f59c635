"""Blocks of rows: their hidden columns, row states and tensors, and the functions that work on rows."""
