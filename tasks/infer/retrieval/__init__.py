"""Dialects of the endpoints of search: embeddings of texts, and scores of documents for a query."""
