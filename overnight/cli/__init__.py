"""The command line `overnight`, one file per command."""
