"""Deployments, work pools and automations on a Prefect server."""
