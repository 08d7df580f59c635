"""What is known of each partition: done, missing, failed, stale."""
