"""JSON text: the lines of a file, or the values of one document, and a line's object with all its digits."""

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
from overnight.tasks.ingest.formats.column_types import is_exact
from overnight.tasks.rows import blocks

RAISE = "raise source.max_row_bytes if a worker's memory holds several rows of that size"
ADVICE = "write one object per line, for example with jq -c '.[]' for an array"
_BLANK = re.compile(r"\s*")
# Numbers whose digits orjson may not all keep: whole ones beyond 64 bits, others of 18 digits and more.
_LONG = r"-[1-9][0-9]{18}|[1-9][0-9]{19}|[1-9][0-9]*\.[0-9]{17}|\.0*[1-9][0-9]{17}|[1-9][0-9]{15}[0-9]*(\.[0-9]|[eE])"
_DIGITS = "[0-9]{16}"  # in all that `_LONG` matches


class Constant(float):
    """NaN, Infinity or -Infinity, as Python writes them into JSON. Text keeps the word."""


def values(pieces: Iterator[bytes | RowError], name: str, most: int) -> Iterator[bytes | RowError]:
    """Yield the lines of a file that are not blank, or if the file is one JSON document, the document's values.

    A document is an array, or objects over several lines. It is in memory whole, and has at most `most` bytes.
    """
    start = [next(pieces, b"")]
    if _is_document(start, pieces, name.lower().endswith((".json", ".json.gz")), most):
        yield from _values_of_document(chain(start, pieces), most)
    else:
        yield from _lines(chain(start, pieces), most)


def _lines(pieces: Iterator[bytes | RowError], most: int) -> Iterator[bytes | RowError]:
    for piece in pieces:
        if isinstance(piece, RowError):
            yield RowError(f"{piece}; {RAISE}")
            continue
        for line in piece.split(b"\n"):
            if len(line) > most:
                yield RowError(f"expected a line of at most {most:,} bytes, found {len(line):,}; {RAISE}")
            elif line.strip():
                yield line


def _is_document(
    start: list[bytes | RowError], pieces: Iterator[bytes | RowError], is_json_file: bool, most: int
) -> bool:
    """Return True if the first value is an array, or an object over several lines."""
    line = _joined(start).lstrip().partition(b"\n")[0].strip()
    if not line.startswith((b"[", b"{")):
        return False
    try:
        return isinstance(orjson.loads(line), list) and is_json_file
    except orjson.JSONDecodeError:
        pass
    count = 0
    while (has_begun := _begins_document(_joined(start))) is None:
        # the number of pieces to add: it grows, because each try reads all pieces again
        count = max(2 * count, 1)
        more = list(islice(pieces, count))
        start += more
        if not more or any(isinstance(piece, RowError) for piece in more) or len(_joined(start)) > most:
            return False
    return has_begun


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


def _values_of_document(pieces: Iterator[bytes | RowError], most: int) -> Iterator[bytes]:
    """Yield the values of an array or of a sequence, each as written. Raise `RowError` if the rest is not JSON."""
    content = bytearray()
    for piece in pieces:
        if isinstance(piece, RowError):
            raise RowError(f"{piece}; {RAISE}")
        content += piece
        if len(content) > most:
            raise RowError(f"expected a JSON document of {most:,} bytes at most, found more; {ADVICE}, or {RAISE}")
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise RowError("expected a JSON document in UTF-8, found other bytes") from None
    decoder, start = json.JSONDecoder(), _next(text, 0)
    is_array = text.startswith("[", start)
    start = _next(text, start + is_array)
    while start < len(text) and not (is_array and text[start] == "]"):
        try:
            stop = _next(text, decoder.raw_decode(text, start)[1])
        except (json.JSONDecodeError, RecursionError) as error:
            raise RowError(f"expected JSON, found {text[start : start + 200]!r}: {error}") from None
        yield text[start:stop].strip().encode()
        start = _next(text, stop + 1) if is_array and text.startswith(",", stop) else stop
    if is_array and text[start:].strip() != "]":
        raise RowError(f"expected the end of a JSON array, found {text[start : start + 200]!r}")


def _next(text: str, start: int) -> int:
    """Return the position of the next character that is not blank."""
    return _BLANK.match(text, start).end()  # type: ignore[union-attr]


def parsed(lines: Sequence[bytes | RowError], allow_nan: bool = False) -> list[dict[str, Any] | RowError]:
    """Return for each line its JSON object, or the error if the line is not an object."""
    text = pa.array([line if isinstance(line, bytes) else b"" for line in lines], pa.large_binary())
    is_long = [False] * len(lines)
    # takes a fifth of the time of the next check
    if pc.any(pc.match_substring_regex(text, _DIGITS)).as_py():
        is_long = pc.match_substring_regex(text, _LONG).to_pylist()
    objects: list[dict[str, Any] | RowError] = []
    for line, has_long_numbers in zip(lines, is_long, strict=True):
        try:
            if isinstance(line, RowError):
                raise line
            objects.append(_parse(line, has_long_numbers, allow_nan))
        except RowError as error:
            objects.append(error)
    return objects


def _parse(line: bytes, has_long_numbers: bool, allow_nan: bool) -> dict[str, Any]:
    excerpt = line[:200].decode(errors="replace")
    try:
        value = orjson.loads(line)
        if has_long_numbers:
            value = json.loads(line, parse_int=_whole, parse_float=_fraction)
    except RecursionError:
        raise RowError(f"expected less nesting of lists and objects, found {excerpt!r}") from None
    except orjson.JSONDecodeError as error:
        value = _with_constants(line, excerpt, error, allow_nan)
    if not isinstance(value, dict):
        advice = f"; {ADVICE}" if isinstance(value, list) else ""
        raise RowError(f"expected a line that is a JSON object, found {excerpt}{advice}")
    if reserved := sorted(filter(blocks.is_hidden, value)):
        raise RowError(f"the key {reserved[0]} is reserved; rename it in the source")
    return value


def _with_constants(line: bytes, excerpt: str, error: orjson.JSONDecodeError, allow_nan: bool) -> Any:
    """Return the value of a line that is JSON but for `NaN` and infinities. Raise `RowError` for other lines."""
    words: list[str] = []

    def constant(word: str) -> Constant:
        words.append(word)
        return Constant(word)

    value = None
    try:
        value = json.loads(line.decode(), parse_int=_whole, parse_float=_fraction, parse_constant=constant)
    except UnicodeDecodeError:
        raise RowError(f"expected text in UTF-8, found {excerpt!r}; see source.encoding") from None
    except (ValueError, RecursionError):
        words.clear()
    if not words:
        is_cut = line.startswith(b"{") and "unexpected end" in str(error)
        is_document = line.startswith(b"[") or is_cut
        advice = f"; {ADVICE}" if is_document else ""
        raise RowError(f"expected a line that is a JSON object, found {excerpt!r}: {error}{advice}")
    if not allow_nan:
        advice = "write null, or set source.allow_nan: true"
        raise RowError(f"expected JSON, which has no {words[0]}, found {excerpt!r}; {advice}")
    return value


def _whole(text: str) -> int | Decimal:
    return int(text) if len(text) <= 20 and -(2**63) <= int(text) < 2**64 else Decimal(text)


def _fraction(text: str) -> float | Decimal:
    value = float(text)
    return value if is_exact(text, value) else Decimal(text)
