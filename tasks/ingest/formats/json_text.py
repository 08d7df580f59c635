"""JSON text: the lines of a file, or the values of one document, and a line's object with all its digits.

It does not use types, units or blocks.
"""

import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import chain, islice
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.exact_numbers import is_exact
from overnight.tasks.rows import blocks

RAISE = "raise source.max_row_bytes if a worker's memory holds several rows of that size"
ADVICE = "write one object per line, for example with jq -c '.[]' for an array"
_BLANK = re.compile(r"\s*")
# Numbers whose digits orjson may not all keep: whole ones beyond 64 bits, others of 18 digits and more.
_LONG = r"-[1-9][0-9]{18}|[1-9][0-9]{19}|[1-9][0-9]*\.[0-9]{17}|\.0*[1-9][0-9]{17}|[1-9][0-9]{15}[0-9]*(\.[0-9]|[eE])"

_NAN = re.compile(rb"NaN|Infinity")
_DIGITS = "[0-9]{16}"  # in all that `_LONG` matches


def values(pieces: Iterator[bytes | RowError], name: str, most: int) -> Iterator[bytes | RowError]:
    """Yield the lines of a file that are not blank, or if the file is one JSON document, the document's values.

    A document is an array, or objects over several lines. A `RowError` replaces a line that is too long.

    Args:
        pieces: The file in pieces of whole lines. A `RowError` takes the place of a line that is too long.
        name: The file's name. In a `.json` file, an array on one line is a document too.
        most: The maximum of bytes of a line, and of a document, which is in memory whole.

    Raises:
        RowError: The rest of a document is not JSON, or is too long.
    """
    taken = [next(pieces, b"")]
    if not _is_document(taken, pieces, name.lower().endswith((".json", ".json.gz")), most):
        for piece in chain(taken, pieces):
            if isinstance(piece, RowError):
                yield RowError(f"{piece}; {RAISE}")
                continue
            for line in piece.split(b"\n"):
                if len(line) > most:
                    yield RowError(f"expected a line of at most {most:,} bytes, found {len(line):,}; {RAISE}")
                elif line.strip():
                    yield line
        return
    content = bytearray(_joined(taken))
    for piece in pieces:
        if isinstance(piece, RowError):
            raise RowError(f"{piece}; {RAISE}")
        content += piece
        if len(content) > most:
            raise RowError(f"expected a JSON document of {most:,} bytes at most, found more; {ADVICE}, or {RAISE}")
    yield from _items(bytes(content))


def parsed(lines: Sequence[bytes | RowError], allow_nan: bool = False) -> list[dict[str, Any] | RowError]:
    """Return for each line its JSON object, or the error if the line is not an object.

    Errors in `lines` are returned unchanged. A number is a `Decimal` if 64 bits cannot represent its digits. If
    `allow_nan`, the words NaN, Infinity and -Infinity are numbers.
    """
    text = pa.array([line if isinstance(line, bytes) else b"" for line in lines], pa.large_binary())
    has_digits = pc.any(pc.match_substring_regex(text, _DIGITS)).as_py()  # takes a fifth of the time of the next check
    is_long = pc.match_substring_regex(text, _LONG).to_pylist() if has_digits else [False] * len(lines)
    return [
        line if isinstance(line, RowError) else _parse(line, long, allow_nan)
        for line, long in zip(lines, is_long, strict=True)
    ]


def _is_document(
    taken: list[bytes | RowError], pieces: Iterator[bytes | RowError], is_json_file: bool, most: int
) -> bool:
    """Return True if the first value is an array, or an object over several lines.

    Move pieces from `pieces` to `taken` until the end of this value.
    """
    line = _joined(taken).lstrip().partition(b"\n")[0].strip()
    if not line.startswith((b"[", b"{")):
        return False
    try:
        return isinstance(orjson.loads(line), list) and is_json_file
    except orjson.JSONDecodeError:
        pass
    size = 0
    while (is_begun := _begins_document(_joined(taken))) is None:
        size = max(2 * size, 1)  # the number of pieces to add: it grows, because each try reads all pieces again
        more = list(islice(pieces, size))
        taken += more
        if not more or any(isinstance(piece, RowError) for piece in more) or len(_joined(taken)) > most:
            return False
    return is_begun


def _joined(pieces: list[bytes | RowError]) -> bytes:
    return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _begins_document(content: bytes) -> bool | None:
    """Return True if an array's first item, or an object of several lines, is whole; None if `content` ends early."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return False
    start = _next(text, 0)
    is_array = text.startswith("[", start)
    start = _next(text, start + is_array)
    if is_array and text.startswith("]", start):
        return True
    try:
        stop = json.JSONDecoder().raw_decode(text, start)[1]
    except json.JSONDecodeError as error:
        return None if error.pos >= len(text.rstrip()) else False
    except RecursionError:
        return False
    return is_array or "\n" in text[start:stop]


def _items(content: bytes) -> Iterator[bytes]:
    """Yield the values of an array or of a sequence, each as written."""
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RowError("expected a JSON document in UTF-8, found other bytes") from None
    decoder, place = json.JSONDecoder(), _next(text, 0)
    is_array = text.startswith("[", place)
    place = _next(text, place + is_array)
    while place < len(text) and not (is_array and text[place] == "]"):
        start = place
        try:
            place = _next(text, decoder.raw_decode(text, start)[1])
        except (json.JSONDecodeError, RecursionError) as error:
            raise RowError(f"expected JSON, found {text[start : start + 200]!r}: {error}") from None
        yield text[start:place].strip().encode()
        if is_array and text.startswith(",", place):
            place = _next(text, place + 1)
    if is_array and text[place:].strip() != "]":
        raise RowError(f"expected the end of a JSON array, found {text[place : place + 200]!r}")


def _next(text: str, place: int) -> int:
    """Return the place of the next character that is not blank."""
    return _BLANK.match(text, place).end()  # type: ignore[union-attr]


def _parse(line: bytes, is_long: bool, allow_nan: bool) -> dict[str, Any] | RowError:
    shown = line[:200].decode(errors="replace")
    try:
        value = json.loads(line) if allow_nan and _NAN.search(line) else orjson.loads(line)
        if is_long:
            value = json.loads(line, parse_int=_whole, parse_float=_fraction)
    except RecursionError:
        return RowError(f"expected less nesting of lists and objects, found {shown!r}")
    except json.JSONDecodeError as error:  # also that of orjson
        if not _is_utf8(line):
            return RowError(f"expected text in UTF-8, found {shown!r}")
        advice = f"; {ADVICE}" if line.startswith((b"[", b"{")) else ""
        return RowError(f"expected a line that is a JSON object, found {shown!r}: {error}{advice}")
    if not isinstance(value, dict):
        advice = f"; {ADVICE}" if isinstance(value, list) else ""
        return RowError(f"expected a line that is a JSON object, found {shown}{advice}")
    if reserved := sorted(filter(blocks.is_hidden, value)):
        return RowError(f"the key {reserved[0]} is reserved; rename it in the source")
    return value


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= 20 and -(2**63) <= int(text) < 2**64 else Decimal(text)


def _fraction(text: str) -> float | Decimal:
    value = float(text)
    return value if is_exact(text, value) else Decimal(text)


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return True
