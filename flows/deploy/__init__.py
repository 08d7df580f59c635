"""Deploy jobs, work pools and automations to a Prefect server."""
