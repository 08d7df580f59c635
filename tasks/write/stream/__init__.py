"""Stage the stream of blocks in parts, show its progress, and measure its performance."""
