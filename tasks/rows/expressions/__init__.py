"""Expressions over columns, in DuckDB's SQL: the accepted syntax, and the database that computes them."""
