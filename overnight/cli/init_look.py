"""Look at the inputs for `overnight init`: the kinds of files, folders that may be labels, and a partition's rows.

It lists at most `MAX_FILES` files and opens one, on any storage. `init_rows.py` looks into a table.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from overnight.cli.init_rows import Columns, look_at_rows
from overnight.tasks.config.masking import masked
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.input_files import input_files
from overnight.tasks.storage.location import File, Location

MAX_FILES = 1000
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
Kinds = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Found:
    """The inputs as init finds them.

    `source` is the kind of most files, or None. `rows` is the number of rows that each partition has, as these files
    show, or 0 if it is unknown. `has_folders` is True if a partition has its files in folders. `columns` are those of
    the first file, if it is a table. `notes` are sentences for the user.
    """

    source: str | None = None
    rows: int = 0
    has_folders: bool = False
    columns: Columns = field(default_factory=Columns)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Input:
    """An input file, its partition, and its path below the partition's folder."""

    file: File
    day: str
    below: str


def look(path: str, kinds: Kinds, source: str | None = None) -> Found:
    """Look at the inputs, and return what was found. An error becomes a note, because the user can answer instead.

    Args:
        path: The place of the inputs, as in a job file.
        kinds: The endings of files, by the kind of the source that reads them.
        source: The kind that the user named; otherwise the kind of most files.
    """
    try:
        files, is_complete = _files_of_days(path) if "{partition}" in path else _files(path)
    except Exception as error:  # of any kind
        return Found(source, notes=(masked(f"cannot look at {path}: {error_message(error)}"),))
    files_of = defaultdict[str | None, list[Input]](list)
    for entry in files:
        files_of[_kind(entry.file, kinds)].append(entry)
    remark = _skipped(files_of.pop(None, []))
    source = source or max(files_of, key=lambda kind: len(files_of[kind]), default=None)
    inputs = files_of[source]
    if source is None or not inputs:
        return Found(source, notes=(f"found no file of a known kind at {masked(path)}{remark}",))
    counts = Counter({kind: len(entries) for kind, entries in files_of.items()})
    days = len({entry.day for entry in files}) if "{partition}" in path else 0
    notes = [_counted(counts, is_complete, days, remark)]
    columns = Columns()
    try:
        columns = look_at_rows(source, inputs[0].file)
        if columns.names:
            notes.append(_described(columns))
    except Exception as error:  # of any kind
        notes.append(masked(f"cannot read the rows of {inputs[0].file.path}: {error_message(error)}"))
    rows = columns.rows if columns.names else _fewest_files(inputs, "" if is_complete else files[-1].day)
    return Found(source, rows, any("/" in entry.below for entry in inputs), columns, tuple(notes))


def _files(path: str) -> tuple[list[Input], bool]:
    """Return the first `MAX_FILES` files at a path without days, and True if these are all."""
    files = list(islice(input_files([path], "all", False, (), True), MAX_FILES + 1))
    inputs = []
    for file in files[:MAX_FILES]:
        inputs.append(Input(file, "all", file.path if file.path != os.path.basename(path) else ""))
    return inputs, len(files) <= MAX_FILES


def _files_of_days(path: str) -> tuple[list[Input], bool]:
    """Return those of the first `MAX_FILES` files that are of a partition, and True if no other file was listed."""
    folder = re.split(r"[^/]*\{partition\}", path)[0] or "."
    head, tail = path.removeprefix(folder).rsplit("{partition}", 1)
    pattern = re.compile(re.escape(head).replace(re.escape("{partition}"), DAY) + f"({DAY})")
    inputs = []
    files = list(islice(Location(folder).files(), MAX_FILES + 1))
    for file in files[:MAX_FILES]:
        if day := pattern.match(file.path):
            inputs.append(Input(file, day[1], file.path[day.end() :].removeprefix(tail).lstrip("/")))
    if files and not inputs:
        raise ValueError(f"expected a day in place of {{partition}}, found {files[0].path} below {folder}")
    return inputs, len(files) <= MAX_FILES


def _kind(file: File, kinds: Kinds) -> str | None:
    for kind, endings in kinds.items():
        if file.path.lower().endswith(endings):
            return kind
    return None


def _fewest_files(inputs: Sequence[Input], partial_day: str) -> int:
    """Return the files of the smallest partition, without the one whose files are not all listed."""
    counts = Counter(entry.day for entry in inputs)
    if len(counts) > 1:
        counts.pop(partial_day, None)
    return min(counts.values())


def _counted(counts: Counter[str | None], is_complete: bool, days: int, remark: str) -> str:
    note = "found " if is_complete else "found among the first files "
    note += ", ".join(f"{count:,} {kind}" for kind, count in counts.most_common())
    if days:
        note += f" in {days:,} partitions"
    note += f"{remark}."
    if len(counts) > 1:
        note += " One job reads one kind; --source names another."
    return note


def _skipped(inputs: Sequence[Input]) -> str:
    endings = Counter(os.path.splitext(entry.file.path)[1] or "no ending" for entry in inputs)
    examples = ", ".join(f"{count:,} with {ending}" for ending, count in endings.most_common(5))
    return f"; a run passes over {endings.total():,} others: {examples}" if endings else ""


def _described(columns: Columns) -> str:
    """Return one line with the names of the columns, and of those with texts, paths of images or images."""
    note = f"columns: {', '.join(columns.names)}"
    uses = {"texts": columns.texts, "paths of images": [columns.image_uris], "images": [columns.image_files]}
    for use, names in uses.items():
        if any(names):
            note += f"; {use} in {', '.join(names)}"
    return note
