"""Tables to which a sink commits: Delta, Iceberg, Lance, SQL."""
