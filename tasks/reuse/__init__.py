"""Answers of endpoints across runs: which requests are the same, and the files that later runs read."""
