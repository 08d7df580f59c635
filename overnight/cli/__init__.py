"""The command line: `overnight`, one file a command."""
