"""The flows that Prefect runs, and the packages that they share."""
