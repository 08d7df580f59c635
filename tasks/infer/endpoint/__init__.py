"""Requests to HTTP endpoints of models: transport, faults, retries, limits, and the log of paid answers."""
