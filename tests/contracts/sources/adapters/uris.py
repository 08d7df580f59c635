"""Lists of URIs in JSON Lines, of text files beside them. `test_uris.py` has web servers and other lists."""

import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.tasks.ingest.sources.uris import Uris
from tests.contracts.sources.adapter import NO_WHERE, ROWS, Adapter, Damage
from tests.tasks.ingest.conftest import rewritten

NO_VERSION = "a URI has no version when its list is read: test_uris.py has files that are missing"


class UriLists(Adapter):
    kind = "uris"
    extension = ".jsonl"
    values = pa.table({"n": range(5), "text": ["", "é 🦉", "02116", "null", "a\nb"]})
    not_applicable = {
        "vanished": NO_VERSION,
        "changed": NO_VERSION,
        "columns": "the setting keep chooses the columns, in every test here",
        "where": NO_WHERE,
        "new column": "the setting keep names the columns, and a list without one of them is refused",
    }
    damages = {
        "a line": Damage(rewritten(lambda content: content.replace(b'"n": 10}', b'"n": 10,')), "JSON", range(1, ROWS)),
        "no URI": Damage(
            rewritten(lambda content: content.replace(b'"uri": "', b'"nothing": "', 1)),
            "expected a URI",
            range(1, ROWS),
        ),
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        content = folder.with_name(f"{folder.name}-content")
        content.mkdir(exist_ok=True)
        lines = []
        for row in rows.to_pylist():
            file = content / uuid.uuid4().hex
            file.write_text(row["text"], newline="")
            lines.append(json.dumps({"uri": str(file), "n": row["n"]}) + "\n")
        path.write_text("".join(lines))
        return path

    def source(self, folder: Path, **settings: Any) -> Uris:
        return Uris(path=str(folder), content="text", keep=["n"], **settings)

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        rows = []
        for path in sorted(folder.rglob("*.jsonl")):
            for line in map(json.loads, path.read_text().splitlines()):
                rows.append({"text": Path(line["uri"]).read_bytes().decode(), "n": line["n"]})
        return rows
