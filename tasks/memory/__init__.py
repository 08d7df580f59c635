"""Rows remembered: what models made of rows, in files that later runs and other jobs read."""
