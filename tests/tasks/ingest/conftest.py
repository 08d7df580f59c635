"""Reads real files with a source as the read does, and holds it to its contract."""

import gzip
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks
from overnight.tasks.state.read_plan import PENDING


@dataclass
class Read:
    """Rows by `row_id`: the visible values of the good, message and type of the bad. `counts`: rows by path."""

    good: dict[str, dict[str, Any]] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.good.values()]


def read_all(source: Source, units: pa.Table | None = None, schema: pa.Schema | None = None) -> Read:
    """Everything that `source` reads. Fails unless every row of every unit is settled exactly once."""
    if units is None:
        units = source.units(list_inputs(source, "all"))
    schema = schema or source.common_schema(units)
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    found, numbers, ends = Read(), defaultdict(list), {}
    for block in source.read(pending, schema):
        for row, shown in zip(block.to_pylist(), blocks.visible(block).to_pylist(), strict=True):
            unit, number, state = row["__unit"], row["__row"], row["__state"]
            if state == blocks.END:
                assert unit not in ends
                ends[unit] = number
                continue
            numbers[unit].append(number)
            if state == blocks.LIVE:
                found.good[row["row_id"]] = shown
            else:
                assert row["__stage"] == "ingest"
                found.bad[row["row_id"]] = row["__error_message"]
                found.types[row["row_id"]] = row["__error_type"]
    for unit in units.to_pylist():
        count = ends[unit["unit"]] if unit["rows"] is None else unit["rows"]
        first = unit["first_row"]
        assert sorted(numbers[unit["unit"]]) == list(range(first, first + count)), unit["path"]
        found.counts[unit["path"]] = found.counts.get(unit["path"], 0) + count
    return found


def assert_broken(found: Read, cases: Mapping[str, tuple[Any, int, str]]) -> None:
    """Of each file, by name, the first so many rows are good, and all others bad for the one reason with the words."""
    for name, (_, kept, words) in cases.items():
        assert [row for row in found.good if row.rpartition("#")[0] == name] == [f"{name}#{n}" for n in range(kept)]
        [reason] = {reason for row, reason in found.bad.items() if name in (row, row.rpartition("#")[0])}
        assert words in reason, f"{name}: {reason}"


def overwritten(content: bytes, first: int, stop: int | None) -> bytes:
    """`content` with other bytes from `first` to `stop`; negative places count from its end."""
    first, stop, _ = slice(first, stop).indices(len(content))
    return content[:first] + b"\xab" * (stop - first) + content[stop:]


def _as_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _as_link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".nowhere"))


def rewritten(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    """What changes a file's bytes in place."""
    return lambda path: path.write_bytes(change(path.read_bytes()))


# What becomes of a table's data file behind the table's back, so that it is of another size than the table says.
RESIZED: dict[str, tuple[Callable[[Path], object], str]] = {
    "empty": (rewritten(lambda content: b""), "bytes, as listed, found 0 bytes"),
    "a text": (rewritten(lambda content: b"no table"), "bytes, as listed, found 8 bytes"),
    "cut at its end": (rewritten(lambda content: content[:-9]), "bytes, as listed, found "),
    "cut in the middle": (rewritten(lambda content: content[:99]), "bytes, as listed, found 99 bytes"),
    "cut at its beginning": (rewritten(lambda content: content[50:]), "bytes, as listed, found "),
    "grown": (rewritten(lambda content: content + b"more"), "bytes, as listed, found "),
    "packed": (rewritten(gzip.compress), "bytes, as listed, found "),
    "gone": (Path.unlink, "expected a file, as listed, found no file any more"),
    "a link to nowhere": (_as_link, "expected a file, as listed, found no file any more"),
    "a folder": (_as_folder, "expected a file, found a folder"),
}


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Read]:
    """Writes files (name -> bytes) and reads them with the source of that kind and those settings."""

    def written_and_read(kind: type[Source], files: Mapping[str, bytes], **settings: Any) -> Read:
        for name, content in files.items():
            path = tmp_path / "source" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        return read_all(kind(path=str(tmp_path / "source"), **settings))

    return written_and_read
