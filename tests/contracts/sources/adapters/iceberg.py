"""Iceberg tables in a catalogue of SQLite, written and read by pyiceberg."""

from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from overnight.tasks.ingest.sources.iceberg import Iceberg
from tests.contracts.sources.adapter import ROWS, Adapter, Damage
from tests.contracts.sources.adapters.delta import NO_LISTING
from tests.contracts.sources.values import without
from tests.tasks.ingest.conftest import RESIZED, overwritten, rewritten

TABLE = "a.b"


def settings_of(folder: Path) -> dict[str, str]:
    return {"name": "tests", "type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def table_in(folder: Path, schema: pa.Schema | None = None) -> Table:
    """Load the folder's table, or create it with the columns of `schema`."""
    catalog = load_catalog(**settings_of(folder))
    try:
        return catalog.load_table(TABLE)
    except NoSuchTableError:
        catalog.create_namespace_if_not_exists("a")
        return catalog.create_table(TABLE, schema=schema)


class IcebergTables(Adapter):
    kind = "iceberg"
    values = without(
        *("uint32", "uint64", "longest decimal", "day64", "nanoseconds", "zoned elsewhere", "zoned nanoseconds"),
        *("time of nanoseconds", "time of milliseconds", "duration", "duration of nanoseconds"),
        *("list view", "nothing"),
    )
    where = {"n": "3"}
    not_applicable = {"hidden": NO_LISTING, "names": NO_LISTING, "folders": NO_LISTING}
    damages = {name: Damage(*damage) for name, damage in RESIZED.items()} | {
        "its end": Damage(rewritten(lambda content: overwritten(content, -4, None)), "magic bytes not found in footer"),
        "its footer": Damage(rewritten(lambda content: overwritten(content, -300, -8)), "data file, as written"),
        "a page": Damage(rewritten(lambda content: overwritten(content, 4, 60)), "data file, as written"),
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        table = table_in(folder, rows.schema)
        if not set(rows.column_names) <= set(table.schema().column_names):
            with table.update_schema() as update:
                update.union_by_name(rows.schema)
        before = set(folder.rglob("*.parquet"))
        table.append(rows)
        return next(iter(set(folder.rglob("*.parquet")) - before), folder)

    def source(self, folder: Path, **settings: Any) -> Iceberg:
        return Iceberg(table=TABLE, catalog=settings_of(folder), **settings)

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        return table_in(folder).scan().to_arrow().to_pylist()

    def row_ids(self, path: Path, folder: Path, count: int = ROWS) -> list[str]:
        return [f"data/{path.name}#{number}" for number in range(count)]
