"""Write the job of a call from Python into a job file, because flows read their job from a file.

A job that is a path stays where it is. A `Job`, a dictionary, and a job that gets data from memory are written to a
temporary folder, which is removed after the call. Relative paths in them are relative to the working directory.
"""

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from overnight.api.data import place_data
from overnight.flows.job.loading import override, read_job, validated
from overnight.flows.job.model import Job
from overnight.flows.job.yaml_loader import plain_value, yaml_document, yaml_line
from overnight.flows.schedule.partitions import only_partition, parse_day
from overnight.tasks.config.code_folders import folder_of, modules_in
from overnight.tasks.errors import JobError
from overnight.tasks.storage.location import Location

AnyJob = str | os.PathLike[str] | Job | Mapping[str, Any]
Overrides = Mapping[str, Any] | Sequence[str]


@dataclass(frozen=True)
class Prepared:
    """A job with its file, the overrides of its settings as KEY=VALUE, and the partition to run."""

    path: Path
    job: Job
    settings: tuple[str, ...]
    partition: str


@contextlib.contextmanager
def prepared(
    job: AnyJob,
    settings: Overrides = (),
    partition: str | None = None,
    data: Any = None,
    data_folder: Location | None = None,
) -> Iterator[Prepared]:
    """Yield the job as a file that exists while the body runs. Raise `JobError` if the job is wrong.

    The files of `data` are removed after the body. If the body raises an error, they stay, so that a later call can
    resume.

    Args:
        job: A path, a `Job` or a dictionary.
        settings: Settings to override: dotted key -> value, or texts KEY=VALUE.
        partition: The day, `all`, or None for the day that is due.
        data: The rows that replace the job's source, as `place_data` takes them. None: keep the source.
        data_folder: The folder for the data; by default `data` in the job's state.
    """
    overrides = as_overrides(settings)
    name = Path(job) if isinstance(job, str | os.PathLike) else Path("the job")
    if data is None and isinstance(job, str | os.PathLike):
        full_job = validated(name, read_job(name, overrides))
        yield Prepared(name, full_job, overrides, _partition(full_job, partition))
        return
    mapping, folder = _mapping(job), None
    if data is None and isinstance(job, Job) and "source" not in mapping:
        raise JobError(f"{name}: source: expected a source in the job, or rows as data=, found neither.")
    if data is not None:
        mapping, folder = _with_data(name, mapping, overrides, partition, data, data_folder)
    with tempfile.TemporaryDirectory(prefix="overnight-") as temporary, modules_in(_code_folder(job)):
        full_job = validated(name, _overridden(mapping, overrides))
        path = Path(temporary) / f"{full_job.name}.yaml"
        path.write_text(yaml_document(mapping), encoding="utf-8")
        yield Prepared(path, full_job, overrides, _partition(full_job, partition))
    if folder:
        folder.remove()


def as_day(partition: str | date | None) -> str | None:
    """Return a partition as `YYYY-MM-DD`, or as it is."""
    return partition.isoformat() if isinstance(partition, date) else partition


def as_date(day: str | date | None) -> date | None:
    """Return a day as a date. Raise `JobError` for a text that is not `YYYY-MM-DD`."""
    text = as_day(day)
    return parse_day(text) if text else None


def as_overrides(settings: Overrides) -> tuple[str, ...]:
    """Return settings as texts KEY=VALUE, which `--set` takes.

    `settings` maps dotted keys to values, or has such texts already.
    """
    if isinstance(settings, Mapping):
        return tuple(f"{key}={yaml_line(plain_value(value))}" for key, value in settings.items())
    return tuple(settings)


def _code_folder(job: AnyJob) -> str:
    """Return the folder of the job's file; the working directory if the job never had one."""
    if isinstance(job, str | os.PathLike):
        return str(Path(job).parent)
    if isinstance(job, Job):
        for code in job.code():
            if folder := folder_of(code.target):
                return folder.path
    return os.getcwd()


def _mapping(job: AnyJob) -> dict[str, Any]:
    """Return the mapping that the job's file has, or would have."""
    if isinstance(job, str | os.PathLike):
        return read_job(Path(job))
    if not isinstance(job, Job | Mapping):
        raise JobError(f"expected a job file, an overnight.Job or a dictionary, found {type(job).__name__}.")
    mapping: dict[str, Any] = job.mapping() if isinstance(job, Job) else plain_value(job)
    return mapping


def _overridden(mapping: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    copy = deepcopy(dict(mapping))
    for line in overrides:
        override(copy, line)
    return copy


def _partition(job: Job, partition: str | None) -> str:
    return only_partition(job, partition, datetime.now(UTC))


def _with_data(
    name: Path,
    mapping: Mapping[str, Any],
    overrides: Sequence[str],
    partition: str | None,
    data: Any,
    data_folder: Location | None,
) -> tuple[dict[str, Any], Location]:
    """Write the data. Return the job's mapping with the data as its source, and the folder of the partition's data.

    The job is dated if `partition` is a day, or if no partition is given and the job's own source is dated.
    """
    for line in overrides:
        if re.match(r"source[.=]", line):
            raise JobError(f"settings: expected none of source together with data, which is the source; found {line}.")
    has_days = partition != "all" if partition else "{partition}" in str(mapping.get("source"))
    has_days = has_days or bool(mapping.get("partitions"))
    subfolder = "{partition}" if has_days else "all"
    placeholder = {"kind": "parquet", "path": f"/{subfolder}"}
    job = validated(name, _overridden({**mapping, "source": placeholder}, overrides))
    root = data_folder or job.state_location / "data"
    folder = root / _partition(job, partition)
    (data_folder or job.state_location).make_private()
    path = f"{(root / subfolder).template}/{place_data(data, folder)}/"
    return {**mapping, "source": {"kind": "parquet", "path": path}}, folder
