"""Expressions over columns, in DuckDB's SQL: what they may say, and the database that computes them."""
