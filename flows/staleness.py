"""Why a published partition is stale: what changed since, of what decides results, in sentences.

The commit is in the receipt's versions and is not compared: most commits change nothing of a job.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flows.job import Job
from tasks.errors import InputError
from tasks.ingest.task import list_inputs
from tasks.manifest import digest, read_manifest
from tasks.run_directory import Run
from tasks.storage import File

SHOWN = 3
LONG = 40
ABSENT = "not set"


def changed_settings(then: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed between the `ingredients` of two runs (`flows/attempt.py`): settings, model files, code, format."""
    why = []
    if settings := list(_differences(then["settings"], now["settings"])):
        why.append(f"settings changed: {_some(settings)}")
    for what, place in (("model", "models"), ("step", "steps")):
        for number, (before, after) in enumerate(zip(then[place], now[place], strict=False)):
            if before != after:
                names = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
                section = "inference" if what == "model" else "preprocess"
                why.append(f"files of {section}.{number} changed: {_some(names)}")
    if then["format_version"] != now["format_version"]:
        why.append(f"format version {then['format_version']}, now {now['format_version']}")
    return tuple(why)


def changed_inputs(job: Job, run: Run, partition: str, receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """What changed of a partition's inputs since the receipt, by listing them. Raises `StorageFailed`."""
    try:
        files = list_inputs(job.source, partition)
    except InputError as error:
        return (f"inputs changed: {error}",)
    if digest(files) == receipt["inputs"]:
        return ()
    manifest = replace(run, partition=partition, generation=receipt["generation"]).manifest
    try:
        units, _ = read_manifest(manifest, ["path", "version", "size"])
    except FileNotFoundError:
        return ("inputs changed",)
    paths, versions = units["path"].to_pylist(), units["version"].to_pylist()
    return (f"inputs changed: {_some(list(_changes(dict(zip(paths, versions, strict=True)), files)))}",)


def _changes(then: Mapping[str, str], files: list[File]) -> Iterator[str]:
    now = {file.path: file.version for file in files}
    for what, paths in (
        ("new", [path for path in now if path not in then]),
        ("gone", [path for path in then if path not in now]),
        ("changed", [path for path in now if path in then and now[path] != then[path]]),
    ):
        if paths:
            yield f"{len(paths):,} {what} ({_some(paths)})"


def _differences(then: Any, now: Any, key: str = "") -> Iterator[str]:
    """`sink.keep: [] -> [image]` for every value that differs; a list as a whole where its length does."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in {**then, **now}:
            yield from _differences(then.get(name, ABSENT), now.get(name, ABSENT), f"{key}.{name}" if key else name)
    elif isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        for number, (before, after) in enumerate(zip(then, now, strict=True)):
            yield from _differences(before, after, f"{key}.{number}")
    elif then != now:
        yield f"{key}: {_brief(then)} -> {_brief(now)}"


def _brief(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= LONG else f"{text[:LONG]}..."


def _some(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN:,} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
