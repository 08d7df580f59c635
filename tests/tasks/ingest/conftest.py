"""Reads real files with a source as the read does, and holds it to its contract."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks import rows
from tasks.ingest.listing import list_inputs
from tasks.ingest.source import Source
from tasks.reading_order import PENDING


@dataclass
class Read:
    """Rows by `row_id`: the visible values of the good, message and type of the bad. `counts`: rows by path."""

    good: dict[str, dict[str, Any]] = field(default_factory=dict)
    bad: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def column(self, name: str) -> list[Any]:
        return [row[name] for row in self.good.values()]


def read_all(source: Source, units: pa.Table | None = None) -> Read:
    """Everything that `source` reads. Fails unless every row of every unit is settled exactly once."""
    if units is None:
        units = source.units(list_inputs(source, "all"))
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    found, numbers, ends = Read(), defaultdict(list), {}
    for block in source.read(pending, source.common_schema(units)):
        for row, shown in zip(block.to_pylist(), rows.visible(block).to_pylist(), strict=True):
            unit, number, state = row["__unit"], row["__row"], row["__state"]
            if state == rows.END:
                assert unit not in ends
                ends[unit] = number
                continue
            numbers[unit].append(number)
            if state == rows.LIVE:
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
