"""The rows of a Lance table, in the process that reads them, without Prefect and Ray."""

from overnight.tasks.search.published_rows import LanceRows

__all__ = ["LanceRows"]
