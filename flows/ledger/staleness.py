"""Explain why a published partition is stale: list the changed inputs, settings, model files and code as sentences.

The receipt also has the commit, but it is not compared, because most commits do not change a job's results.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

from overnight.flows.job.model import Job
from overnight.tasks.errors import InputError
from overnight.tasks.ingest.task import list_inputs, stream_inputs
from overnight.tasks.state.manifest import digest, read_manifest
from overnight.tasks.state.publications import results_like, undone_records
from overnight.tasks.state.run import Run, changed_commits
from overnight.tasks.write.kinds import RECORDED_AS

Cause = Literal["settings", "model", "code", "format", "inputs", "upstream", "abandoned"]
SHOWN = 3
SHOWN_OF_COMMIT = 12
LONG, BEFORE = 60, 20  # the characters of a value to show, and how many of them before the first change
ABSENT = "not set"
RENAMED = {f"sink.{recorded}": f"sink.{name}" for name, recorded in RECORDED_AS.items()}


class Reason(str):
    """A sentence on why a partition is stale, with its causes in short."""

    causes: tuple[Cause, ...]

    def __new__(cls, sentence: str, *causes: Cause) -> "Reason":
        """Return the sentence with these causes."""
        reason = super().__new__(cls, sentence)
        reason.causes = causes
        return reason


class UnlistedInputs(Reason):
    """The sentence of an error that ends the listing of the inputs, and so also a run."""


def changed_settings(receipt: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    """Return a sentence for each difference between a receipt and a run, except inputs, that makes it stale."""
    now = {"fingerprint": run.fingerprint, "ingredients": run.ingredients}
    sentences = list(_changed_ingredients(receipt, now))
    before, after = receipt.get("commits") or {}, run.commits
    for name in changed_commits(receipt, run):
        old, new = (str(commits[name])[:SHOWN_OF_COMMIT] for commits in (before, after))
        sentences.append(Reason(f"{name} changed on the hub: {old} -> {new}", "model"))
    return tuple(sentences)


def unknown_commits(receipt: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    """Return a sentence for each hub model whose recorded commit cannot be compared, because the hub is away."""
    before = receipt.get("commits") or {}
    return tuple(
        f"{name}: unknown if it changed, because the hub cannot be reached"
        for name, commit in run.commits.items()
        if commit is None and before.get(name)
    )


def undone(receipt: Mapping[str, Any], run: Run) -> tuple[str, ...]:
    """Return a sentence if the published rows are those of an undo, and the job would make the undone ones again."""
    results = results_like(receipt, run)
    if not any(record in results for record in undone_records(receipt)):
        return ()
    return (f"{undo_text(receipt)}; only --force, another setting or input starts a run",)


def undo_text(receipt: Mapping[str, Any]) -> str:
    """Return who undid which generation when and why, from the receipt of an undo."""
    undo = receipt["undo"]
    text = f"{undo['by']} undid {undo['undone']['generation']} at {receipt['finished_at']}"
    return text + f" ({receipt['reason']})" * bool(receipt.get("reason"))


def _changed_ingredients(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Reason]:
    if before["fingerprint"] == after["fingerprint"]:
        return
    then, now = before["ingredients"], after["ingredients"]
    is_visible = False
    if settings := list(differences(then["settings"], now["settings"])):
        is_visible = True
        yield Reason(f"settings changed: {some(settings)}", *sorted({*map(_cause_of, settings)}))
    for leaf, names in changed_files(then, now):
        is_visible = True
        is_code = all(name.endswith(".py") for name in names)
        yield Reason(f"files of {leaf} changed: {some(names)}", "code" if is_code else "model")
    if then["format_version"] != now["format_version"]:
        yield Reason(f"format version changed: {then['format_version']} -> {now['format_version']}", "format")
    elif not is_visible:
        yield Reason("settings changed: a part that is masked", "settings")


def _cause_of(difference: str) -> Cause:
    """Return `model` for another model, or for more or fewer of them; `settings` for any other setting."""
    key = difference.partition(": ")[0]
    is_of_model = key == "inference" or (key.startswith("inference.") and key.endswith(".model"))
    return "model" if is_of_model else "settings"


def changed_files(then: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, list[str]]]:
    """Yield each model and step whose files differ between two ingredients, with the names of these files."""
    for section, files in (("inference", "models"), ("preprocess", "steps")):
        for leaf, before, after in zip(now["settings"][section], then[files], now[files], strict=False):
            if names := sorted(name for name in {*before, *after} if before.get(name) != after.get(name)):
                yield f"{section}.{_name(leaf)}", names


def changed_inputs(job: Job, run: Run, partition: str, receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """List a partition's inputs, and return one sentence if they changed since the receipt, or cannot be listed."""
    try:
        results = results_like(receipt, run) or [receipt]
        if digest(stream_inputs(job.source, partition)) in [result["inputs"] for result in results]:
            return ()
        files = list_inputs(job.source, partition)  # in memory only if there are changes to list
    except InputError as error:
        return (UnlistedInputs(f"inputs: {error}", "inputs"),)
    manifest = replace(run, partition=partition, generation=receipt["generation"]).manifest
    try:
        units, _ = read_manifest(manifest, ["path", "version"])
    except FileNotFoundError:
        return (Reason("inputs changed", "inputs"),)
    before = dict(zip(units["path"].to_pylist(), units["version"].to_pylist(), strict=True))
    changes = list(_changes(before, {file.path: file.version for file in files}))
    return (Reason(f"inputs changed: {some(changes)}" if changes else "inputs changed", "inputs"),)


def _changes(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for change, paths in (
        ("new", sorted(now.keys() - then.keys())),
        ("gone", sorted(then.keys() - now.keys())),
        ("changed", [path for path in now if path in then and now[path] != then[path]]),
    ):
        if paths:
            yield f"{len(paths):,} {change} ({some(paths)})"


def differences(then: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield `sink.table: a -> b` for every value that differs. The key of a step or a model is its name or kind."""
    if isinstance(then, Mapping) and isinstance(now, Mapping):
        for name in {**then, **now}:
            inner = f"{key}.{name}" if key else name
            yield from differences(then.get(name, ABSENT), now.get(name, ABSENT), inner)
    elif _are_leaves(then) and _are_leaves(now):
        old_names, new_names = map(_name, then), map(_name, now)
        before, after = " + ".join(old_names), " + ".join(new_names)
        if before != after:
            yield f"{key}: {before or 'none'} -> {after or 'none'}"
            return
        for old, new in zip(then, now, strict=True):
            yield from differences(old, new, f"{key}.{_name(old)}")
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
    """Return a value, or the part of a long value around its first change, which follows `same` characters."""
    if len(text) <= LONG:
        return text
    start = max(0, min(same - BEFORE, len(text) - LONG))
    end = start + LONG
    return "..." * (start > 0) + text[start:end] + "..." * (end < len(text))


def some(items: list[str]) -> str:
    more = f" and {len(items) - SHOWN:,} more" * (len(items) > SHOWN)
    return ", ".join(items[:SHOWN]) + more
