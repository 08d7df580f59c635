"""Worker processes and their failures: fork server, watchdog, poison rows, retry, supervisor."""
