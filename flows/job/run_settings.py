"""Which settings of its job a run of a deployment may change: values, and never code, models or places.

A user who may start a run could otherwise run code as its worker, or send the worker's data and keys elsewhere. The
types of the settings decide, see `Adjustable`. A job permits more by `allow_settings`. A run from the command line or
from Python changes what it likes, because its user has the rights of its process.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from overnight.flows.job.model import Job
from overnight.tasks.config.settings import Adjustable, Leaf, Settings
from overnight.tasks.errors import JobError


def check_run_settings(job: Job, changed: Job) -> None:
    """Raise `JobError` if a run of a deployment may not change the job in this way."""
    if job.allow_settings == "all":
        return
    allowed = tuple(f"{key}." for key in job.allow_settings)
    keys = [key for key in _differences("", job, changed, False) if not f"{key}.".startswith(allowed)]
    if keys:
        raise JobError(
            "settings: expected values alone, such as inference.0.batch_size, because a run of a deployment changes no "
            f"code, models, names and places; found {', '.join(keys)}. Change the job file, or permit it there: "
            f"allow_settings: [{', '.join(keys)}]."
        )


def _differences(key: str, before: Any, after: Any, is_adjustable: bool) -> Iterator[str]:
    """Yield the dotted key of each setting that differs and is not adjustable."""
    if isinstance(before, Settings) and type(before) is type(after):
        for name, field in type(after).model_fields.items():
            adjustable = Adjustable.is_among(field.annotation, field.metadata)
            yield from _differences(_joined(key, name), getattr(before, name), getattr(after, name), adjustable)
    elif _has_leaves(before) and _has_leaves(after) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _differences(_joined(key, number), old, new, is_adjustable)
    elif isinstance(before, Mapping) and isinstance(after, Mapping):
        for name in sorted({*before, *after}, key=str):
            yield from _differences(_joined(key, name), before.get(name), after.get(name), is_adjustable)
    elif before != after and not is_adjustable:
        yield key


def _joined(key: str, name: str | int) -> str:
    return f"{key}.{name}" if key else str(name)


def _has_leaves(value: Any) -> bool:
    return isinstance(value, Sequence) and any(isinstance(entry, Leaf) for entry in value)
