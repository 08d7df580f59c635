"""Search: the published rows whose embeddings are most similar to that of a query."""
