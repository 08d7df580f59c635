"""The stream of blocks as it is staged: parts, progress, performance."""
