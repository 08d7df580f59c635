"""The protocols of batch APIs, one file each."""
