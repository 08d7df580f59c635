"""What is on disk about a run: run, lease, manifest, read plan, staged parts, garbage; and databases by URL."""
