"""Explain why a published partition is stale: list the changed inputs, settings, model files and code as sentences.

The receipt also has the commit, but it is not compared, because most commits do not change a job's results.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from overnight.flows.job.model import RECORDED_AS, Job
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.task import list_inputs, stream_inputs
from overnight.tasks.state.manifest import digest, read_manifest
from overnight.tasks.state.run import Run, changed_commits
from overnight.tasks.storage.location import File

SHOWN = 3
SHOWN_OF_COMMIT = 12
LONG, BEFORE = 60, 20  # the characters of a value to show, and how many of them before the first change
ABSENT = "not set"
RENAMED = {f"sink.{recorded}": f"sink.{name}" for name, recorded in RECORDED_AS.items()}


def changed_settings(receipt: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    """Return a sentence for each difference between a receipt and a run that makes the partition stale, except inputs.

    It may concern settings, model files, code, the format version, or commits on the Hugging Face Hub.
    """
    then, now = receipt.get("commits") or {}, run.commits
    commits = [
        f"{name} changed on the hub: {str(then[name])[:SHOWN_OF_COMMIT]} -> {str(now[name])[:SHOWN_OF_COMMIT]}"
        for name in changed_commits(receipt, run)
    ]
    return (*_changed_ingredients(receipt, run), *commits)


def unknown_commits(receipt: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    """Return a sentence for each hub model whose recorded commit cannot be compared, because the hub is away."""
    then = receipt.get("commits") or {}
    return tuple(
        f"{name}: unknown if it changed, because the hub cannot be reached"
        for name, commit in run.commits.items()
        if commit is None and then.get(name)
    )


def _changed_ingredients(receipt: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    if receipt["fingerprint"] == run.fingerprint:
        return ()
    then, now = receipt["ingredients"], run.ingredients
    why = []
    if settings := list(_differences(then["settings"], now["settings"])):
        why.append(f"settings changed: {_some(settings)}")
    for section, place in (("inference", "models"), ("preprocess", "steps")):
        for leaf, before, after in zip(now["settings"][section], then[place], now[place], strict=False):
            if names := sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
                why.append(f"files of {section}.{_name(leaf)} changed: {_some(names)}")
    if then["format_version"] != now["format_version"]:
        why.append(f"format version changed: {then['format_version']} -> {now['format_version']}")
    return tuple(why) or ("settings changed: a part that is masked",)


def changed_inputs(job: Job, run: Run, partition: str, receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """List a partition's inputs. If they changed since the receipt, return one sentence about this, otherwise nothing.

    If the inputs cannot be listed, the sentence has the reason. Raise `ServiceUnavailable` if their storage is away.
    """
    try:
        if digest(stream_inputs(job.source, partition)) == receipt["inputs"]:
            return ()
        files = list_inputs(job.source, partition)  # in memory only if there are changes to list
    except InputError as error:
        return (f"inputs: {error}",)
    manifest = replace(run, partition=partition, generation=receipt["generation"]).manifest
    try:
        units, _ = read_manifest(manifest, ["path", "version"])
    except FileNotFoundError:
        return ("inputs changed",)
    then = dict(zip(units["path"].to_pylist(), units["version"].to_pylist(), strict=True))
    changes = list(_changes(then, files))
    return (f"inputs changed: {_some(changes)}" if changes else "inputs changed",)


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
    """Yield `sink.table: a -> b` for every value that differs. The key of a step or a model is its name or kind."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in {**then, **now}:
            yield from _differences(then.get(name, ABSENT), now.get(name, ABSENT), f"{key}.{name}" if key else name)
    elif _are_leaves(then) and _are_leaves(now):
        names = [[_name(leaf) for leaf in leaves] for leaves in (then, now)]
        if names[0] != names[1]:
            yield f"{key}: {' + '.join(names[0]) or 'none'} -> {' + '.join(names[1]) or 'none'}"
            return
        for name, before, after in zip(names[0], then, now, strict=True):
            yield from _differences(before, after, f"{key}.{name}")
    elif json.dumps(then) != json.dumps(now):  # as the fingerprint compares: 1 is not 1.0
        before, after = (value if isinstance(value, str) else json.dumps(value) for value in (then, now))
        shorter = min(len(before), len(after))
        same = next((number for number in range(shorter) if before[number] != after[number]), shorter)
        yield f"{RENAMED.get(key, key)}: {_brief(before, same)} -> {_brief(after, same)}"


def _are_leaves(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) and "kind" in item for item in value)


def _name(leaf: Mapping[str, Any]) -> str:
    return str(leaf.get("name") or leaf["kind"])


def _brief(text: str, same: int) -> str:
    """Return a value, or the part of a long value around its first change.

    The change follows `same` characters that did not change.
    """
    if len(text) <= LONG:
        return text
    first = max(0, min(same - BEFORE, len(text) - LONG))
    return f"{'...' if first else ''}{text[first : first + LONG]}{'...' if first + LONG < len(text) else ''}"


def _some(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN:,} more" if len(items) > SHOWN else ""
    return ", ".join(items[:SHOWN]) + more
