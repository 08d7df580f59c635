"""Tables of a database: SQLite, written and read by Python's module sqlite3. `test_sql.py` has PostgreSQL."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.tasks.ingest.sources.sql import Sql
from tests.contracts.sources.adapter import ROWS, Adapter
from tests.contracts.sources.adapters.delta import NO_LISTING

QUERY = "the query chooses the columns and the rows"
NO_FILE = "a row is one of a database, which has no files: test_sql.py changes and removes rows"


class SqlRows(Adapter):
    kind = "sql"
    values = pa.table(
        {
            "n": pa.array(range(7), pa.int64()),
            "whole": pa.array([0, -(2**63), 2**63 - 1, None, 1, 2, 3], pa.int64()),
            "real": [0.1, float("inf"), float("-inf"), None, -0.0, 5e-324, 1e308],
            "text": ["", "02116", None, "é 🦉", "NaN", "null", "a\n"],
            "bytes": [b"", b"\xff\x00", None, b"a", b"b", b"c", b"d"],
        }
    )
    not_applicable = {
        "damage": NO_FILE,
        "vanished": NO_FILE,
        "changed": NO_FILE,
        "hidden": NO_LISTING,
        "names": NO_LISTING,
        "folders": NO_LISTING,
        "new column": "a query has the same columns in all rows",
        "columns": QUERY,
        "where": QUERY,
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        with closing(sqlite3.connect(folder / "rows.db")) as database, database:
            names, marks = ", ".join(rows.column_names), ", ".join("?" * rows.num_columns)
            database.execute(f"CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, {names})")
            values = [tuple(row.values()) for row in rows.to_pylist()]
            database.executemany(f"INSERT INTO rows ({names}) VALUES ({marks})", values)
            [last] = database.execute("SELECT max(id) FROM rows").fetchone()
        return folder / "rows.db" / str(last)

    def source(self, folder: Path, **settings: Any) -> Sql:
        settings = {"rows_per_unit": 2, **settings}  # several units of few rows, as other sources have files
        return Sql(url=f"sqlite:///{folder}/rows.db", query="SELECT * FROM rows", key="id", **settings)

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        with closing(sqlite3.connect(folder / "rows.db")) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute("SELECT * FROM rows")]

    def row_ids(self, path: Path, folder: Path, count: int = ROWS) -> list[str]:
        last = int(path.name)
        return [str(number) for number in range(last - count + 1, last + 1)]
