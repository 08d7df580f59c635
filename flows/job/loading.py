"""Load a job file: apply `--set` overrides, make relative paths absolute, and raise errors that name the key.

`{partition}` and `${ENV_VAR}` stay as they are here, until a run uses them.
"""

import contextlib
import functools
import os
import re
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from overnight.flows.job.columns import column_problems
from overnight.flows.job.model import Job
from overnight.flows.job.run_settings import check_run_settings
from overnight.flows.job.validation_errors import explain
from overnight.flows.job.yaml_loader import parse_yaml
from overnight.tasks.config.code_folders import modules_in
from overnight.tasks.config.masking import secrets_in
from overnight.tasks.errors import JobError
from overnight.tasks.ingest.kinds import JobRows, Upstream
from overnight.tasks.storage.location import expand

PATHS = (("source", "path"), ("source", "job"), ("sink", "path"), ("state",))


class JobFile:
    """A job file that is read only once. A flow passes it to all functions that need the job.

    The constructor raises `JobError` if the file cannot be read or holds no mapping. If `is_deployed`, overrides come
    from a run of a deployment, which may change values only.
    """

    def __init__(self, path: Path | str, is_deployed: bool = False) -> None:
        self.path, self.is_deployed = Path(path), is_deployed
        self._data = read_job(path)
        self._jobs: dict[tuple[str, ...], Job] = {}

    def job(self, overrides: Sequence[str] = ()) -> Job:
        """Return the job with these `KEY=VALUE` overrides. Equal overrides return the same object.

        Raise `JobError` if the job or an override is wrong. Its message has a line for each problem.
        """
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
            check_run_settings(
                *(Job.model_validate(_with_full_paths(data)) for data in (deepcopy(self._data), changed))
            )


def load_job(path: Path | str, overrides: Sequence[str] = ()) -> Job:
    """Load a job file with `KEY=VALUE` overrides. Return the job with its relative paths made absolute.

    Raise `JobError` with a line for each problem: the key, what is allowed and what was found.
    """
    return validated(path, read_job(path, overrides))


def validated(path: Path | str, data: dict[str, Any], readers: tuple[Path, ...] = ()) -> Job:
    """Return the job that a mapping describes. Relative paths become absolute, also in the mapping itself.

    `path` is the job file. `readers` are the files of the jobs that read the rows of this one, directly or through
    others.

    Raise `JobError` if the mapping is wrong, or if a job reads itself through others. The message begins with `path`.
    """
    try:
        with modules_in(str(Path(path).parent)):
            job = Job.model_validate(_with_full_paths(data))
        job = _with_upstream(job, Path(path), readers)
        lines = column_problems(job)
    except ValidationError as error:
        lines = explain(error, data, job_schema())
    if not lines:
        return job
    several = "" if len(lines) == 1 else f"{len(lines)} problems\n  "
    raise JobError(f"{path}: {several}" + "\n  ".join(lines))


def _with_full_paths(data: dict[str, Any]) -> dict[str, Any]:
    """Return the mapping, in which relative paths are absolute now."""
    for keys, found in relative_places(data):
        section: Any = data
        for key in keys[:-1]:
            section = section[key]
        section[keys[-1]] = absolute(found)
    return data


def _with_upstream(job: Job, path: Path, readers: tuple[Path, ...]) -> Job:
    """Return the job with what its source must know of the job that it reads, if it reads one.

    Raise `JobError` if that job's file is wrong, its sink cannot be read, or it reads this job.
    """
    if not isinstance(job.source, JobRows):
        return job
    other, chain = Path(expand(job.source.job)).expanduser(), (*readers, path.resolve())
    if other.resolve() in chain:
        names = " reads ".join(one.name for one in (*chain[chain.index(other.resolve()) :], other))
        raise JobError(f"{path}: source.job: expected a job that does not read this one, found {names}.")
    try:
        upstream = validated(other, read_job(other), chain)
        source = job.source.reading(
            Upstream(
                name=upstream.name,
                job_file=str(other),
                sink_kind=upstream.sink.kind,
                sink=upstream.sink.place or "",
                state=upstream.state_location.template,
                partition_column=upstream.sink.partition_column,
                is_dated=upstream.is_dated,
                compression=getattr(upstream.sink, "compression", ""),
            )
        )
    except JobError as error:
        raise JobError(f"{path}: source.job: {str(error).removeprefix('source.job: ')}") from None
    if upstream.state_location == job.state_location:
        raise JobError(f"{path}: source.job: expected a job with another sink, found {other}, which publishes there.")
    return job.model_copy(update={"source": source})


def read_job(path: Path | str, overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the mapping in a job file, with `KEY=VALUE` overrides, before validation.

    Raise `JobError` if the file cannot be read or holds no mapping, or if an override is wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise JobError(f"{path}: expected a job file, found no file.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path}: cannot read the job file: {error}") from None
    data = parse_yaml(text, str(path))
    if not isinstance(data, dict):
        found = "an empty file" if data is None else f"a {'list' if isinstance(data, list) else type(data).__name__}"
        raise JobError(f"{path}: expected a mapping with name, source and sink, found {found}.")
    for line in overrides:
        override(data, line)
    return data


def relative_paths(data: Mapping[str, Any]) -> list[str]:
    """Return a text such as `source.path: data/raw` for each path in a job's mapping that is relative.

    A relative path depends on the working directory.
    """
    return [f"{'.'.join(map(str, keys))}: {found}" for keys, found in relative_places(data)]


def is_relative(path: str) -> bool:
    """Return True if a path of a job file depends on the working directory. URIs, `~` and `${VARIABLE}` do not."""
    return not re.match(r"/|~|\$\{|[A-Za-z][A-Za-z0-9+.-]*:", path)


def absolute(path: str) -> str:
    """Return the full path of a path below the working directory; a slash at the end stays."""
    return os.path.abspath(path) + ("/" if path.endswith("/") else "")


@functools.cache  # the first call takes half a second
def job_schema() -> dict[str, Any]:
    """Return the JSON schema of job files, for editors."""
    schema = Job.model_json_schema()
    for definition in schema["$defs"].values():
        if "const" in definition.get("properties", {}).get("kind", {}):
            definition["required"] = ["kind", *(key for key in definition.get("required", []) if key != "kind")]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Overnight job"}


def relative_places(data: Mapping[str, Any]) -> list[tuple[tuple[str | int, ...], str]]:
    """Return a pair of keys and path for each path in a job's mapping that depends on the working directory.

    The keys lead to the path, such as `("source", "path")`, or `("source", "path", 0)` for the first path of a list.
    """
    found: list[tuple[tuple[str | int, ...], str]] = []
    for keys in PATHS:
        value: Any = data
        for key in keys:
            value = value.get(key) if isinstance(value, Mapping) else None
        several = [((*keys, place), path) for place, path in enumerate(value)] if isinstance(value, list) else []
        for place, path in several or [(keys, value)]:
            if isinstance(path, str) and path and is_relative(path):
                found.append((place, path))
    return found


def override(data: dict[str, Any], line: str) -> None:
    """Change one setting in a job's mapping. `line` is KEY=VALUE.

    KEY has dots, as in `inference.0.batch_size`, and VALUE is YAML. Raise `JobError` for a key that the mapping cannot
    have, for a value that is not YAML, and for a secret in plain text.
    """
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
    where = ".".join(parents)
    if isinstance(section, dict):
        return part
    if not isinstance(section, list):
        raise JobError(f"setting {key}: {where} is {section!r} and has no keys.")
    if not section:
        raise JobError(f"setting {key}: {where} is empty in the job file.")
    if not part.isdecimal() or int(part) >= len(section):
        raise JobError(f"setting {key}: expected a number from 0 to {len(section) - 1} after {where}, found {part}.")
    return int(part)
