"""Staging, verification, checks and publishing."""
