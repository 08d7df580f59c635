"""Search: the published rows whose embedding is most like that of a query."""
