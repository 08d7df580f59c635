"""The flows that Prefect runs, and what they share."""
