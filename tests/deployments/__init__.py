"""What lies in deployments/, checked against the schemas of those who read it."""
