"""What a process imports to run models itself, without Prefect and Ray, such as a preview."""

from overnight.tasks.infer.link import Link, drop_heavy, heavy_columns, without_unread
from overnight.tasks.infer.trial import require_inputs
from overnight.tasks.infer.worker import release_memory

__all__ = ["Link", "drop_heavy", "heavy_columns", "release_memory", "require_inputs", "without_unread"]
