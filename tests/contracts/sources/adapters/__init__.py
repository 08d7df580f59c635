"""One file per kind of source, which has its adapter as `ADAPTER`."""
