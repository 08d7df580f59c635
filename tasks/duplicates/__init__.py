"""Which rows of a partition are duplicates: keys of rows, the decision between rows, and where a decision is kept."""
