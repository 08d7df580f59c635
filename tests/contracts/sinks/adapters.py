"""Each sink with the reference library that reads its table, and with what its format cannot hold.

`refused` has the columns of `values.columns()` whose type the sink refuses before the first row. `lost_rows` has the
columns of which it quarantines rows, and their numbers.
"""

import gzip
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from overnight.tasks.state.run import Run
from overnight.tasks.write.sink import Sink
from tests.contracts.sinks.publications import columns_of, in_partition, rows_in_database, rows_in_table, sink_of

Rows = dict[str, list[Any]]  # column -> its cells, in the order of row_id
BEYOND_PARQUET = frozenset({"interval", "union"})
FINE = {
    "nanosecond": {0, 1}, "nanosecond_zoned": {0, 1}, "nanosecond_in_list": {0, 1}, "nanosecond_in_struct": {0},
}  # fmt: skip


@dataclass(frozen=True)
class Adapter:
    """A sink, and `read`, which returns the rows of the run's partition as a stranger finds them."""

    kind: str
    read: Callable[[Run, Sink, list[str]], Rows]
    refused: frozenset[str] = BEYOND_PARQUET
    lost_rows: Mapping[str, set[int]] = field(default_factory=dict)

    def sink(self, place: Path | str) -> Sink:
        return sink_of(self.kind, place)

    def beside(self, count: int) -> dict[str, Any]:
        """The columns that the sink needs besides those of a test."""
        return {name: found for name, found in columns_of(self.kind, list(range(count))).items() if name != "x"}


def sorted_rows(table: pa.Table) -> Rows:
    table = table.take(pa.array(sorted(range(len(table)), key=lambda row: number_of(table["row_id"][row].as_py()))))
    return {name: list(table[name]) for name in table.column_names}


def number_of(row_id: str) -> int:
    return int(re.sub(r"\D", "", row_id))


def from_parquet(run: Run, sink: Sink, files: list[str]) -> Rows:
    names = [name for name in run.target.names() if name.endswith(".parquet")]
    tables = [pq.read_table(f"{run.target.uri}/{name}", partitioning=None) for name in names]
    return sorted_rows(pa.concat_tables(tables, promote_options="default")) if tables else {}


def text_files(run: Run, ending: str) -> list[Path]:
    return sorted(path for path in Path(run.target.uri).glob("part-*") if ending in path.suffixes)


def from_jsonl(run: Run, sink: Sink, files: list[str]) -> Rows:
    rows = []
    for path in text_files(run, ".jsonl"):
        content = path.read_bytes()
        lines = gzip.decompress(content) if path.suffix == ".gz" else content
        rows += [json.loads(line) for line in lines.splitlines()]
    return by_column(rows)


def from_csv(run: Run, sink: Sink, files: list[str]) -> Rows:
    """By DuckDB, as text. An empty cell is null, and one in quotes an empty text."""
    rows = []
    for path in text_files(run, ".csv"):
        found = duckdb.sql(f"FROM read_csv('{path}', header=true, all_varchar=true, allow_quoted_nulls=false)")
        rows += found.to_arrow_table().to_pylist()
    return by_column(rows)


def by_column(rows: list[dict[str, Any]]) -> Rows:
    rows.sort(key=lambda row: number_of(row["row_id"]))
    return {name: [row[name] for row in rows] for name in (rows[0] if rows else ())}


def from_table(run: Run, sink: Sink, files: list[str]) -> Rows:
    return sorted_rows(rows_in_table(run, sink))


def from_iceberg(run: Run, sink: Any, files: list[str]) -> Rows:
    """The snapshot's files by pyarrow: pyiceberg 0.12 returns [] for null in a column of lists of structs."""
    table = SqlCatalog("default", uri=sink.catalog).load_table(sink.table)
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    tables = [pq.read_table(path, partitioning=None) for path in paths]
    if not tables:
        return {}
    found = sorted_rows(in_partition(pa.concat_tables(tables, promote_options="default"), run))
    assert sorted(rows_in_table(run, sink)["row_id"].to_pylist()) == sorted(cell.as_py() for cell in found["row_id"])
    return found


def from_database(run: Run, sink: Any, files: list[str]) -> Rows:
    return by_column(rows_in_database(run, sink))


TABLES_LACK = BEYOND_PARQUET | {"decimal256_long"}
ADAPTERS = {
    "parquet": Adapter("parquet", from_parquet),
    "jsonl": Adapter("jsonl", from_jsonl),
    "csv": Adapter("csv", from_csv),
    "images": Adapter("images", from_parquet),
    "delta": Adapter("delta", from_table, TABLES_LACK, FINE),
    "iceberg": Adapter("iceberg", from_iceberg, TABLES_LACK, FINE),
    "lance": Adapter(
        "lance",
        from_table,
        BEYOND_PARQUET
        | {"map", "map_of_numbers", "map_in_list", "map_in_struct", "fixed_structs", "fixed_words"}
        | {"decimal32(5, 2)", "decimal64(9, 2)"},
    ),
    "sql": Adapter("sql", from_database, BEYOND_PARQUET, FINE | {"nan": {0}, "nanosecond_of_day": {0, 1}}),
}
POSTGRESQL = Adapter(
    "postgresql",
    from_database,
    BEYOND_PARQUET,
    FINE | {"nanosecond_of_day": {0, 1}, "nan_in_struct": {0, 1}, "nan_in_lists": {0}},
)
