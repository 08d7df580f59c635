"""A simulator of runs at one partition: their processes, the storage and the clock, one operation after another."""
