"""JSON Lines, written and read by Python's module json."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa

from overnight.tasks.ingest.sources.jsonl import Jsonl
from tests.contracts.sources.adapter import NO_COLUMNS, NO_WHERE, ROWS, Adapter, Damage
from tests.contracts.sources.values import TEXTS
from tests.tasks.ingest.conftest import overwritten, rewritten

# By column, the JSON of each row's value. A column whose values no Arrow type holds is text: see `shown`.
TYPED = {
    "n": "0 1 2 -9223372036854775808 9223372036854775807",
    "unsigned": "18446744073709551615 0 null 1 1",
    "float": "0.1 5e-324 -0.0 1e308 null",
    "truth": "true false null true true",
    "list": '[1,null] [] null [9007199254740993] []',
    "record": '{"a":"","b":[1.5]} {"a":null,"b":[]} {"a":"x","b":null} null {"a":"y","b":[null]}',
    "nothing": "null null null null null",
}  # fmt: skip
AS_TEXT = {
    "a number beside text": '1 "N/A" 3 true null',
    "a truth beside numbers": "true 1 false 2.5 null",
    "a list beside a number": '[1] 1 [2] null [3]',
    "a record beside text": '{"a":1} "x" {"a":2} null {}',
    "beyond 64 bits": "18446744073709551617 -9223372036854775809 1 null 2",
    "beyond a float": "0.12345678901234567891 9007199254740993.5 null 1 2.5",
    "objects without keys": "{} {} null {} {}",
    "mixed lists": '[1,"a"] ["b",2.5] [null] null []',
    "records of two forms": '{"a":1} {"a":"x"} null {"a":[]} {}',
}  # fmt: skip


def shown(text: str) -> str | None:
    """A value in a column of text: a string and null as they are, all others as JSON."""
    value = json.loads(text)
    return value if value is None or isinstance(value, str) else text


class JsonLines(Adapter):
    kind = "jsonl"
    leaf = Jsonl
    extension = ".jsonl"
    values = pa.table(
        {"text": TEXTS[:5], **{name: values.split(" ") for name, values in (TYPED | AS_TEXT).items()}},
    )
    damages = {
        "cut": Damage(rewritten(lambda content: content[:-3]), "unexpected end", range(ROWS - 1)),
        "a byte": Damage(rewritten(lambda content: overwritten(content, 2, 3)), "UTF-8", range(1, ROWS)),
    }
    not_applicable = {
        "columns": NO_COLUMNS,
        "where": NO_WHERE,
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        lines = []
        for row in rows.to_pylist():
            cells = {
                key: value if key in TYPED | AS_TEXT and isinstance(value, str) else json.dumps(value)
                for key, value in row.items()
            }
            lines.append("{" + ", ".join(f"{json.dumps(key)}: {cell}" for key, cell in cells.items()) + "}\n")
        path.write_text("".join(lines))
        return path

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        texts = [path.read_text() for path in sorted(folder.rglob("*.jsonl"))]
        rows = [json.loads(line) for text in texts for line in text.splitlines()]
        places = {json.loads(text): place for place, text in enumerate(TYPED["n"].split(" "))}
        for row in rows:
            row |= {name: shown(AS_TEXT[name].split(" ")[places[row["n"]]]) for name in AS_TEXT if name in row}
        return rows
