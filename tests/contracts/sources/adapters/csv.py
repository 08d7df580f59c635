"""CSV files, written and read by Python's module csv."""

import csv
import io
from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.tasks.ingest.sources.csv import Csv
from tests.contracts.sources.adapter import NO_COLUMNS, NO_WHERE, ROWS, Adapter, Damage
from tests.tasks.ingest.conftest import rewritten

TEXTS = ["a", "", 'say "x"', "a,b", "two\nlines", "02116", "1e5", "NaN", "NULL", "é", " a ", "\u3000", "\t", "🦉"]


class CsvFiles(Adapter):
    kind = "csv"
    leaf = Csv
    extension = ".csv"
    values = pa.table(
        {
            "n": pa.array(range(len(TEXTS)), pa.int64()),
            "text": TEXTS,
            "code": [f"{number:05d}" for number in range(len(TEXTS))],
            "huge": [str(10**20 + number) for number in range(len(TEXTS))],
        }
    )
    damages = {
        "a byte of Latin-1": Damage(
            rewritten(lambda content: content.replace(b"row 10", b"row \xe9")), "expected UTF-8", range(1, ROWS)
        ),
        "cut": Damage(rewritten(lambda content: content[:-9]), "expected 2 fields, found 1", range(ROWS - 1)),
    }
    not_applicable = {
        "columns": NO_COLUMNS,
        "where": NO_WHERE,
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(rows.column_names)
        writer.writerows(row.values() for row in rows.to_pylist())
        path.write_bytes(text.getvalue().encode())
        return path

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path in sorted(folder.rglob("*.csv")):
            with path.open(newline="", encoding="utf-8") as file:
                rows += csv.DictReader(file)
        return [row | {"n": int(row["n"])} for row in rows]
