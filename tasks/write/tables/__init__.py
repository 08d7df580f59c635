"""Tables that a sink commits to: Delta, Iceberg, Lance, SQL."""
