"""Look at the inputs for `overnight init`: the kinds of files, folders, and a partition's rows.

It lists at most `MAX_FILES` files, on any storage. `init_rows.py` opens the first ones.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice

from overnight.cli.init_rows import Inputs, look_at_rows, source_kinds
from overnight.tasks.config.masking import masked
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.input_files import input_files
from overnight.tasks.storage.location import File, Location

MAX_FILES = 1000
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"


@dataclass(frozen=True)
class ListedFile:
    """An input file, its partition, and its path below the partition's folder."""

    file: File
    day: str
    below: str


def look(path: str, source: str | None = None) -> Inputs:
    """Return what the inputs show. An error becomes a note, because the user can answer instead.

    `source` is the kind that the user named; by default it is the kind of most files.
    """
    try:
        files, is_complete = _files_of_days(path) if "{partition}" in path else _files(path)
    except Exception as error:  # of any kind
        return Inputs(source, notes=(masked(f"cannot look at {path}: {error_message(error)}"),))
    files_of = defaultdict[str | None, list[ListedFile]](list)
    for entry in files:
        files_of[_kind(entry.file)].append(entry)
    remark = _skipped(files_of.pop(None, []))
    source = source or max(files_of, key=lambda kind: len(files_of[kind]), default=None)
    entries = files_of[source]
    if source is None or not entries:
        note = f"found no file of a known kind at {masked(path)}{remark}"
        return Inputs(source, notes=(note,))
    note = "found " if is_complete else "found among the first files "
    counts = Counter({kind: len(entries) for kind, entries in files_of.items()})
    note += ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    if "{partition}" in path:
        note += f" in {len({entry.day for entry in files}):,} partitions"
    note += f"{remark}."
    if len(counts) > 1:
        note += " One job reads one kind; --source names another."
    inputs, notes = Inputs(), [note]
    try:
        inputs = look_at_rows(source, [entry.file for entry in entries])
    except Exception as error:  # of any kind
        notes.append(masked(f"cannot read {entries[0].file.path}: {error_message(error)}"))
    if inputs.names:
        notes.append(_described(inputs))
    else:
        rows = _fewest_files(entries, "" if is_complete else files[-1].day)
        inputs = replace(inputs, rows=rows)
    has_folders = any("/" in entry.below for entry in entries)
    return replace(inputs, source=source, has_folders=has_folders, notes=tuple(notes))


def _files(path: str) -> tuple[list[ListedFile], bool]:
    """Return the first `MAX_FILES` files at a path without days, and True if these are all."""
    files = list(islice(input_files([path], "all", False, (), True), MAX_FILES + 1))
    entries = []
    for file in files[:MAX_FILES]:
        below = file.path if file.path != os.path.basename(path) else ""
        entries.append(ListedFile(file, "all", below))
    return entries, len(files) <= MAX_FILES


def _files_of_days(path: str) -> tuple[list[ListedFile], bool]:
    """Return the files of partitions among the first `MAX_FILES`, and True if these are all."""
    folder = re.split(r"[^/]*\{partition\}", path)[0] or "."
    head, tail = path.removeprefix(folder).rsplit("{partition}", 1)
    pattern = re.compile(re.escape(head).replace(re.escape("{partition}"), DAY) + f"({DAY})")
    entries = []
    files = list(islice(Location(folder).files(), MAX_FILES + 1))
    for file in files[:MAX_FILES]:
        if day := pattern.match(file.path):
            below = file.path[day.end() :].removeprefix(tail).lstrip("/")
            entries.append(ListedFile(file, day[1], below))
    if files and not entries:
        example = f"{files[0].path} below {folder}"
        raise ValueError(f"expected a day in place of {{partition}}, found {example}")
    return entries, len(files) <= MAX_FILES


def _kind(file: File) -> str | None:
    for kind, endings in source_kinds().items():
        if file.path.lower().endswith(endings):
            return kind
    return None


def _fewest_files(entries: Sequence[ListedFile], partial_day: str) -> int:
    """Return the files of the smallest partition, without one whose files are not all listed."""
    counts = Counter(entry.day for entry in entries)
    if len(counts) > 1:
        counts.pop(partial_day, None)
    return min(counts.values())


def _skipped(entries: Sequence[ListedFile]) -> str:
    endings = Counter(os.path.splitext(entry.file.path)[1] or "no ending" for entry in entries)
    examples = ", ".join(f"{count:,} with {ending}" for ending, count in endings.most_common(5))
    return f"; a run passes over {endings.total():,} others: {examples}" if endings else ""


def _described(inputs: Inputs) -> str:
    """Return one line with the names of all columns, and of the texts, paths and images."""
    note = f"columns: {', '.join(inputs.names)}"
    uses = {"texts": inputs.texts, "paths of images": [inputs.image_uris], "images": [inputs.image_files]}
    for use, names in uses.items():
        if any(names):
            note += f"; {use} in {', '.join(names)}"
    return note
