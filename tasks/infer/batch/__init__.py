"""Batch APIs of providers: requests of rows, sealed in files, whose answers fill the log of paid answers."""
