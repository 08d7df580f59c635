"""Compare JSON with Python's `json`: each file as a document of objects, and its content as a value in a line."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ours
from judging import Refused, is_like, unlike
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.jsonl import Jsonl

CORPORA = ("JSONTestSuite/test_parsing", "big-list-of-naughty-strings")


def read(path: Path) -> list[Any]:
    """Return the objects of a document."""
    return ours.values(Jsonl, path)


def by_json(path: Path) -> Iterator[dict[str, Any] | Refused]:
    """Yield the objects of a document: the items of an array, otherwise the document itself."""
    found = _loaded(path.read_bytes())
    for value in found if isinstance(found, list) else [found]:
        yield value if isinstance(value, dict) else Refused(f"no object: {value!r:.80}")


def read_lines(path: Path) -> list[Any]:
    """Return the content as a value, read as a key's value in a line between two others."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "lines.jsonl")
        file.write_bytes(b'{"other":1}\n' + _line(path) + b'\n{"other":2}\n')
        rows = ours.values(Jsonl, file)
    others = [row if isinstance(row, Refused) else row.get("other") for row in (rows[0], rows[-1])]
    assert (len(rows), others) == (3, [1, 2]), f"expected three lines, found {rows!r:.300}"
    row = rows[1]
    return [row if isinstance(row, Refused) else {"value": row.get("value")}]


def by_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the line as Python reads it."""
    yield _loaded(_line(path))


def differs(mine: dict[str, Any], other: dict[str, Any]) -> str:
    """Return how the values differ. Mixed types become JSON text, and a missing key is null."""
    for name in dict.fromkeys([*other, *mine]):
        value, expected = mine.get(name), _known(other.get(name))
        if isinstance(value, str) and not isinstance(expected, str):
            value = json.loads(value)
        if not is_like(_known(value), expected):
            return unlike(mine, other)
    return ""


def _line(path: Path) -> bytes:
    return b'{"value":' + path.read_bytes().replace(b"\n", b" ") + b"}"


def _loaded(content: bytes) -> Any:
    return json.loads(content.decode("utf-8-sig"), parse_constant=_refuse)


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _known(value: Any) -> Any:
    """Return the value without keys that are null, because a column has every key in every row."""
    if isinstance(value, dict):
        return {key: _known(inner) for key, inner in sorted(value.items()) if inner is not None}
    return [_known(inner) for inner in value] if isinstance(value, list) else value


KIND = Kind("JSON documents", CORPORA, ends_in(*Jsonl.extensions), read, by_json, differs)
LINES = Kind("values in JSON Lines", CORPORA, ends_in(*Jsonl.extensions), read_lines, by_json_lines, differs)
