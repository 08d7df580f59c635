"""List what changed between two receipts: settings, files of models, code, versions and inputs."""

from collections.abc import Iterator, Mapping
from typing import Any

from overnight.flows.history.lines import Remark
from overnight.flows.ledger.staleness import changed_files, differences, some, undo_text
from overnight.flows.report.page import number, size
from overnight.tasks.config.masking import masked

CODE = (".py", ".pyc", ".so")
SHOWN = 12  # characters of a commit
USUAL_INPUTS = 1.5  # a factor of the rows, or of the bytes a row, from one partition to the next
Record = Mapping[str, Any]


def changes_between(before: Record, now: Record) -> list[Remark]:
    """Return what changed from one receipt to a later one."""
    changes = [*_settings(before, now), *_files(before, now), *_versions(before, now), *_inputs(before, now)]
    return [*_undo(now), *changes]


def _undo(now: Record) -> Iterator[Remark]:
    if now.get("undo"):
        yield Remark("undo", undo_text(now))


def _settings(before: Record, now: Record) -> Iterator[Remark]:
    """Yield changed settings: also settings that change no result, such as the size of a batch."""
    sentences: dict[str, None] = {}  # in order, each once
    for then, after in ((_ingredients(before), _ingredients(now)), (before, now)):
        if then.get("settings") and after.get("settings"):
            sentences |= dict.fromkeys(differences(then["settings"], after["settings"]))
    if sentences:
        yield Remark("settings", some(list(sentences)))


def _files(before: Record, now: Record) -> Iterator[Remark]:
    then, after = _ingredients(before), _ingredients(now)
    if not then or not after:
        return
    for leaf, names in changed_files(then, after):
        kinds: dict[str, list[str]] = {"model": [], "code": []}
        for name in names:
            kinds["code" if name.endswith(CODE) else "model"].append(name)
        for kind, files in kinds.items():
            if files:
                yield Remark(kind, f"{some(files)} of {leaf}")


def _versions(before: Record, now: Record) -> Iterator[Remark]:
    for kind, key in (("model", "commits"), ("versions", "versions")):
        then, after = before.get(key) or {}, now.get(key) or {}
        for name in then | after:
            old, new = then.get(name), after.get(name)
            if old != new and not (key == "commits" and None in (old, new)):  # an unknown commit is equal
                subject = "code" if name == "commit" else kind
                length = SHOWN if "commit" in (name, key[:6]) else None
                yield Remark(subject, f"{name} {_text(old)[:length]} -> {_text(new)[:length]}")


def _text(value: Any) -> str:
    return masked(str(value or "none"))  # before it is cut: half a secret has no form


def _inputs(before: Record, now: Record) -> Iterator[Remark]:
    """Yield what is unusual in the inputs. Two days always have other inputs, so digests are of no use."""
    for name, show in (("rows", number), ("bytes a row", size)):
        then, after = _measure(before, name), _measure(now, name)
        if then and after and not 1 / USUAL_INPUTS <= after / then <= USUAL_INPUTS:
            yield Remark("inputs", f"{name} {show(then)} -> {show(after)}")
    unreadable = len(now.get("unreadable") or ())
    if unreadable > len(before.get("unreadable") or ()):
        yield Remark("inputs", f"unreadable files {len(before.get('unreadable') or ())} -> {unreadable}")


def _measure(record: Record, name: str) -> float | None:
    rows = record.get("rows_in")
    if name == "rows" or not rows:
        return rows
    return (record.get("bytes_in") or 0) / rows


def _ingredients(record: Record) -> Record:
    return record.get("ingredients") or {}
