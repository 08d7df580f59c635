"""The state of a run on disk: run, lease, manifest, read plan, staged parts, garbage; and databases by URL."""
