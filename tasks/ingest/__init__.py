"""Manifests of a partition's inputs, and the reading of them."""
