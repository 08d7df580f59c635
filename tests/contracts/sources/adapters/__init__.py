"""One adapter per kind of source, in a file by its name; those of media are in one file."""
