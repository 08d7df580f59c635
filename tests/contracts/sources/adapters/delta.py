"""Delta tables, written and read by deltalake."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from overnight.tasks.ingest.sources.delta import Delta
from tests.contracts.sources.adapter import Adapter, Damage
from tests.contracts.sources.values import without
from tests.tasks.ingest.conftest import RESIZED, overwritten, rewritten

NO_LISTING = "the log of the table names its files, so that no folder is listed"


class DeltaTables(Adapter):
    kind = "delta"
    leaf = Delta
    values = without(
        *("uint8", "uint16", "uint32", "uint64", "half", "longest decimal", "numbers as words", "nothing"),
        *("time", "time of nanoseconds", "time of milliseconds", "duration", "duration of nanoseconds"),
    )
    not_applicable = {
        "hidden": NO_LISTING,
        "names": NO_LISTING,
        "folders": NO_LISTING,
        "where": "it selects whole files by their partition, which one file cannot show",
    }
    damages = {name: Damage(*damage) for name, damage in RESIZED.items()} | {
        "its end": Damage(rewritten(lambda content: overwritten(content, -4, None)), "magic bytes not found in footer"),
        "its footer": Damage(rewritten(lambda content: overwritten(content, -300, -8)), "whole Parquet file"),
        "a page": Damage(rewritten(lambda content: overwritten(content, 4, 60)), "row group 0"),
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        before = set(folder.glob("*.parquet"))
        rows = pa.Table.from_pylist(rows.to_pylist(), rows.schema)  # deltalake 1.6 aborts for slices of some types
        write_deltalake(folder, rows, mode="append", schema_mode="merge")
        return next(iter(set(folder.glob("*.parquet")) - before), folder)

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        return pa.table(DeltaTable(folder).scan()).to_pylist()
