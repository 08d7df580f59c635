"""Load a job file: apply `--set` overrides, make relative paths absolute, and raise errors that name the key.

`{partition}` and `${ENV_VAR}` stay as they are here, until a run uses them.
"""

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from overnight.flows.job.columns import column_problems
from overnight.flows.job.model import JOB_FILE, Job
from overnight.flows.job.partitions import Partitions
from overnight.flows.job.run_settings import check_run_settings
from overnight.flows.job.validation_errors import explain
from overnight.flows.job.yaml_loader import parse_yaml, replace_values, value_at, yaml_line
from overnight.tasks.config.code_folders import modules_in
from overnight.tasks.config.masking import secrets_in
from overnight.tasks.errors import JobError
from overnight.tasks.ingest.kinds import JobRows, Upstream
from overnight.tasks.storage.location import expand
from overnight.tasks.storage.stores import joined, use

PATHS = (("source", "path"), ("source", "job"), ("run_after", "job"), ("sink", "path"), ("state",))


class JobFile:
    """A job file that is read only once. A flow passes it to all functions that need the job.

    If `is_deployed`, overrides come from a run of a deployment, which may change values only.
    """

    def __init__(self, path: Path | str, is_deployed: bool = False) -> None:
        self.path, self.is_deployed = Path(path), is_deployed
        self._data = read_job(path)
        self._jobs: dict[tuple[str, ...], Job] = {}

    def job(self, overrides: Sequence[str] = ()) -> Job:
        """Return the job with these `KEY=VALUE` overrides. Equal overrides return the same object."""
        key = tuple(overrides)
        if key not in self._jobs:
            data = deepcopy(self._data)
            for line in overrides:
                override(data, line)
            if overrides and self.is_deployed:
                self._check_run_settings(data)
            self._jobs[key] = validated(self.path, data)
        return self._jobs[key]

    def _check_run_settings(self, changed: dict[str, Any]) -> None:
        """Raise `JobError` for a change that a run may not make, before anything that the change names is read."""
        with modules_in(str(self.path.parent)), contextlib.suppress(ValidationError):  # which `validated` explains
            job = Job.model_validate(_with_full_paths(deepcopy(self._data)), context=JOB_FILE)
            check_run_settings(job, Job.model_validate(_with_full_paths(changed), context=JOB_FILE))


def load_job(path: Path | str, overrides: Sequence[str] = ()) -> Job:
    """Load a job file with `KEY=VALUE` overrides. Return the job with its relative paths made absolute."""
    return validated(path, read_job(path, overrides))


def validated(path: Path | str, data: dict[str, Any]) -> Job:
    """Return the job that a mapping describes. Relative paths become absolute, also in the mapping itself.

    This process then reaches stores as the job's `storage` describes.
    """
    job = _validated(path, data)
    use(job.storage)
    return job


def _validated(path: Path | str, data: dict[str, Any], readers: tuple[Path, ...] = ()) -> Job:
    """Return the job. `readers` are the files of the jobs that read the rows of this one, directly or not."""
    try:
        with modules_in(str(Path(path).parent)):
            job = Job.model_validate(_with_full_paths(data), context=JOB_FILE)
        job = _with_upstream(job, Path(path), readers)
        lines = column_problems(job)
    except ValidationError as error:
        lines = explain(error, data, job_schema())
    if not lines:
        return job
    count = "" if len(lines) == 1 else f"{len(lines)} problems\n  "
    raise JobError(f"{path}: {count}" + "\n  ".join(lines))


def _with_full_paths(data: dict[str, Any]) -> dict[str, Any]:
    for (*parents, last), path in relative_places(data):
        value_at(data, parents)[last] = absolute(path)
    return data


def _with_upstream(job: Job, path: Path, readers: tuple[Path, ...]) -> Job:
    """Return the job with what it must know of the jobs that it reads or follows, if there are any."""
    readers = (*readers, path.resolve())
    if isinstance(job.source, JobRows):
        with _named(path, "source.job"):
            upstream, file = _other_job(job, job.source.job, readers)
            source, job = job.source, _with_partitions(job, upstream)
            source = source.reading(_described(job, upstream, file, job.partitions))
            job = job.model_copy(update={"source": source, "storage": joined(job.storage, upstream.storage)})
    entries = []
    for after in job.run_after:
        with _named(path, "run_after.job"):
            upstream, file = _other_job(job, after.job, readers)
            own = after.checked(job.periods, upstream.periods)
            entries.append(after.reading(_described(job, upstream, file, own), own))
            job = job.model_copy(update={"storage": joined(job.storage, upstream.storage)})
    return job.model_copy(update={"run_after": entries}) if entries else job


def _other_job(job: Job, name: str, readers: tuple[Path, ...]) -> tuple[Job, Path]:
    """Return the job in the file `name`, which `job` reads or follows, and the file."""
    file = Path(expand(name)).expanduser()
    if file.resolve() in readers:
        circle = " needs ".join(path.name for path in (*readers[readers.index(file.resolve()) :], file))
        raise JobError(f"expected a job that does not need this one, found {circle}.")
    upstream = _validated(file, read_job(file), readers)
    if upstream.state_location == job.state_location:
        raise JobError(f"expected a job with another sink, found {file}, which publishes there.")
    return upstream, file


def _described(job: Job, upstream: Job, file: Path, own: Partitions | None) -> Upstream:
    """Return what a job must know of another one. `own` are the partitions that need those of the other job."""
    selection = None
    if own and upstream.periods:
        selection = own.reading(upstream.periods, job.timezone, upstream.timezone)
    return Upstream(
        name=upstream.name,
        job_file=str(file),
        sink_kind=upstream.sink.kind,
        sink=upstream.sink.place or "",
        state=upstream.state_location.template,
        partition_column=upstream.sink.partition_column,
        is_dated=upstream.is_dated,
        compression=getattr(upstream.sink, "compression", ""),
        shorter=selection,
    )


@contextlib.contextmanager
def _named(path: Path, key: str) -> Iterator[None]:
    """Add the job file and the key to a `JobError` of the body."""
    try:
        yield
    except (JobError, ValueError) as error:
        raise JobError(f"{path}: {key}: {str(error).removeprefix(f'{key}: ')}") from None


def _with_partitions(job: Job, upstream: Job) -> Job:
    """Return the job with the partitions of the one that it reads, unless it has its own."""
    if job.partitions and upstream.periods is None:
        raise JobError("expected a job with partitions, found one whose only partition is all.")
    if job.partitions or upstream.partitions is None:
        return job
    columns = ",".join(upstream.partitions.columns)
    sink = job.sink.model_copy(update={"partition_column": columns})
    return job.model_copy(update={"partitions": upstream.partitions, "sink": sink})


def read_job(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the mapping in a job file, with `KEY=VALUE` overrides, before validation."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"{path}: expected a job file, found no file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: cannot read the job file: {error}") from None
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        content = "an empty file" if data is None else f"a {type(data).__name__}"
        raise JobError(f"{path}: expected a mapping with name, source and sink, found {content}.")
    for line in overrides:
        override(data, line)
    return data


def relative_paths(data: Mapping[str, Any]) -> list[str]:
    """Return a text such as `source.path: data/raw` for each path in a job's mapping that is relative."""
    return [f"{'.'.join(map(str, keys))}: {path}" for keys, path in relative_places(data)]


def is_relative(path: str) -> bool:
    """Return True if a path of a job file depends on the working directory. URIs, `~` and `${VARIABLE}` do not."""
    return not re.match(r"/|~|\$\{|[A-Za-z][A-Za-z0-9+.-]*:", path)


def absolute(path: str) -> str:
    """Return the full path of a path below the working directory; a slash at the end stays."""
    return os.path.abspath(path) + ("/" if path.endswith("/") else "")


@functools.cache  # the first call takes half a second
def job_schema() -> dict[str, Any]:
    schema = Job.model_json_schema()
    for definition in schema["$defs"].values():
        if "const" in definition.get("properties", {}).get("kind", {}):
            definition["required"] = list(dict.fromkeys(["kind", *definition.get("required", [])]))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Overnight job"}


def relative_places(data: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """Return a pair of keys and path for each path in a job's mapping that depends on the working directory.

    The keys lead to the path, such as `("source", "path")`, or `("source", "path", 0)` for the first path of a list.
    """
    paths: list[tuple[str, ...]] = list(PATHS)
    partitions = data.get("partitions")
    if isinstance(partitions, Mapping):
        for column in partitions:
            paths += [("partitions", column, "file"), ("partitions", column, "folders")]
        for column in partitions.get("values") or ():
            paths += [("partitions", "values", column, "file"), ("partitions", "values", column, "folders")]
    places = chain.from_iterable(_values(data, keys) for keys in paths)
    return [(keys, path) for keys, path in places if isinstance(path, str) and path and is_relative(path)]


def _values(value: Any, names: tuple[str, ...], keys: tuple[str | int, ...] = ()) -> Iterator[tuple[Any, Any]]:
    """Yield the keys and the value of each setting that `names` lead to, in each item of a list on the way."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _values(item, names, (*keys, number))
    elif not names:
        yield keys, value
    elif isinstance(value, Mapping):
        yield from _values(value.get(names[0]), names[1:], (*keys, names[0]))


def override(data: dict[str, Any], line: str) -> None:
    """Change one setting in a job's mapping. `line` is KEY=VALUE, such as `inference.0.batch_size=8`; VALUE is YAML."""
    key, equals, text = line.partition("=")
    if not equals or not key:
        raise JobError(f"setting {line}: expected KEY=VALUE, for example inference.0.batch_size=8.")
    *parents, last = key.split(".")
    section: Any = data
    for depth, part in enumerate(parents):
        if isinstance(section, dict) and section.get(part) is None:
            section[part] = [] if key.split(".")[depth + 1].isdecimal() else {}
        section = section[_index(section, part, key, parents[:depth])]
    value = parse_yaml(text, f"setting {key}")
    for secret in secrets_in(key, value):
        raise JobError(
            f"setting {secret}: expected no secret, found one. Prefect stores and shows the settings of a run. Write "
            "${NAME} for an environment variable that holds the secret where the job runs, or read it in your own code."
        )
    section[_index(section, last, key, parents)] = value


def _index(section: Any, part: str, key: str, parents: list[str]) -> str | int:
    if isinstance(section, dict):
        return part
    parent = ".".join(parents)
    if not isinstance(section, list):
        raise JobError(f"setting {key}: {parent} is {section!r} and has no keys.")
    if not section:
        raise JobError(f"setting {key}: {parent} is empty in the job file.")
    if not part.isdecimal() or int(part) >= len(section):
        raise JobError(f"setting {key}: expected a number from 0 to {len(section) - 1} after {parent}, found {part}.")
    return int(part)


def write_absolute_paths(path: Path) -> list[str]:
    """Replace the relative paths in a job file by full paths, and return the new ones, as `source.path: /data/raw`.

    The rest of the file stays as it is, with its comments.
    """
    paths = {keys: absolute(relative) for keys, relative in relative_places(read_job(path))}
    texts = {keys: yaml_line([full])[1:-1] for keys, full in paths.items()}  # as in a list: the braces of {partition}
    text = replace_values(path.read_text(encoding="utf-8"), texts)
    if not _has_values(text, paths):
        raise JobError(f"{path}: its anchors hide the relative paths. Write {', '.join(paths.values())} yourself.")
    copy = path.with_name(f".{path.name}.new")
    copy.write_text(text, encoding="utf-8")
    copy.replace(path)
    return [f"{'.'.join(map(str, keys))}: {full}" for keys, full in paths.items()]


def _has_values(text: str, values: Mapping[Any, str]) -> bool:
    try:
        data = parse_yaml(text, "the new file")
    except JobError:  # an anchor is gone
        return False
    return all(value_at(data, keys) == value for keys, value in values.items())
