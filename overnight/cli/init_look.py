"""Look at the inputs for `overnight init`: the kinds of files, folders that may be labels, and a partition's rows.

It lists at most `MAX_FILES` files and opens one, on any storage. `init_rows.py` looks into a table.
"""

import os
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import islice

from overnight.cli.init_rows import Columns, described, look_at_rows
from overnight.tasks.config.masking import masked
from overnight.tasks.rows.error_text import error_message
from overnight.tasks.storage.input_files import input_files
from overnight.tasks.storage.location import File, Location

MAX_FILES = 1000
DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"


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


def look(path: str, kinds: Mapping[str, tuple[str, ...]], source: str | None = None) -> Found:
    """Look at the inputs, and return what was found. An error becomes a note, because the user can answer instead.

    Args:
        path: The place of the inputs, as in a job file.
        kinds: The endings of files, by the kind of the source that reads them.
        source: The kind that the user named; otherwise the kind of most files.
    """
    try:
        days, is_all = _files_by_day(path)
    except Exception as error:  # of any kind
        return Found(source, notes=(masked(f"cannot look at {path}: {error_message(error)}"),))
    files = [file for of_day in days.values() for file, _ in of_day]
    counts = Counter(_kind(file, kinds) for file in files)
    source = source or max((kind for kind in counts if kind), key=lambda kind: counts[kind], default=None)
    if source is None or not counts[source]:
        return Found(source, notes=(f"found no file of a known kind at {masked(path)}{_others(files, kinds)}",))
    own = {day: [one for one in of_day if _kind(one[0], kinds) == source] for day, of_day in days.items()}
    found = Found(source, has_folders=any("/" in below for of_day in own.values() for _, below in of_day))
    first = next(file for of_day in own.values() for file, _ in of_day)
    notes = [_counted(counts, files, kinds, is_all, len(days) if "{partition}" in path else 0)]
    try:
        found = replace(found, columns=look_at_rows(source, first))
        notes += [described(found.columns)] if found.columns.names else []
    except Exception as error:  # of any kind
        notes.append(masked(f"cannot read the rows of {first.path}: {error_message(error)}"))
    return replace(found, rows=_rows(found, [len(of_day) for of_day in own.values()], is_all), notes=tuple(notes))


def _files_by_day(path: str) -> tuple[dict[str, list[tuple[File, str]]], bool]:
    """Return the files of each partition with their paths below its folder, and whether these are all files."""
    days = defaultdict(list)
    if "{partition}" not in path:
        listed = list(islice(input_files([path], "all", False, (), True), MAX_FILES + 1))
        days["all"] = [(file, file.path if file.path != os.path.basename(path) else "") for file in listed[:MAX_FILES]]
        return dict(days), len(listed) <= MAX_FILES
    place = re.split(r"[^/]*\{partition\}", path)[0] or "."
    head, tail = path.removeprefix(place).rsplit("{partition}", 1)
    day = re.compile(re.escape(head).replace(re.escape("{partition}"), DAY) + f"({DAY})")
    listed = list(islice(Location(place).files(), MAX_FILES + 1))
    for file in listed[:MAX_FILES]:
        if found := day.match(file.path):
            days[found[1]].append((file, file.path[found.end() :].removeprefix(tail).lstrip("/")))
    if listed and not days:
        raise ValueError(f"expected a day in place of {{partition}}, found {listed[0].path} below {place}")
    return dict(days), len(listed) <= MAX_FILES


def _kind(file: File, kinds: Mapping[str, tuple[str, ...]]) -> str | None:
    return next((kind for kind, endings in kinds.items() if file.path.lower().endswith(endings)), None)


def _rows(found: Found, files: list[int], is_all: bool) -> int:
    """Return the rows of the first file of a table, or the files of the smallest partition that was listed whole."""
    whole = files if is_all or len(files) == 1 else files[:-1]
    return found.columns.rows if found.columns.names else min(filter(None, whole), default=0)


def _counted(
    counts: Counter[str | None], files: list[File], kinds: Mapping[str, tuple[str, ...]], is_all: bool, days: int
) -> str:
    known = [f"{count:,} {kind}" for kind, count in counts.most_common() if kind]
    found = f"found {'' if is_all else 'among the first files '}{', '.join(known)}"
    others = _others(files, kinds)
    one_kind = " One job reads one kind; --source names another." if len(known) > 1 else ""
    return f"{found}{f' in {days:,} partitions' if days else ''}{others}.{one_kind}"


def _others(files: list[File], kinds: Mapping[str, tuple[str, ...]]) -> str:
    endings = Counter(os.path.splitext(file.path)[1] or "no ending" for file in files if _kind(file, kinds) is None)
    shown = ", ".join(f"{count:,} with {ending}" for ending, count in endings.most_common(5))
    return f"; a run passes over {sum(endings.values()):,} others: {shown}" if endings else ""
