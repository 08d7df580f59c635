"""The status of each partition: published, missing, failed, stale or running."""
