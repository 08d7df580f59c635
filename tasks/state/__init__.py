"""The state of a run on disk: its files, lease, manifest, read plan and staged parts, and the files to clean up."""
