"""What a process imports to read the rows of a Lance table itself, without Prefect and Ray."""

from overnight.tasks.search.published_rows import LanceRows

__all__ = ["LanceRows"]
