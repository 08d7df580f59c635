"""The staging of the stream of blocks: parts, progress, performance."""
