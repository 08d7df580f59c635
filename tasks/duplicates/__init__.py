"""Find the duplicate rows of a partition: make keys of the rows, compare the keys, and keep the result in a file."""
