"""Manifests of a partition's inputs, and reading of these inputs."""
