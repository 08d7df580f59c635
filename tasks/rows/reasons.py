"""The reasons of quarantined rows in a few words: `1 truncated PNG, 1 not an image`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

LONGEST, TOLD = 60, 3
# the line of the user's code, which `error_message` adds
_PLACE = re.compile(r" \([^()]*:\d+, in [^()]*\)$")
_WHOLE = re.compile(r"expected a whole (\w+) ")
_QUOTED = re.compile(r"b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"(?<![A-Za-z_])-?\d[\d,.]*(?:e[+-]?\d+)?(?![A-Za-z_])|0x[0-9a-f]+")
_EXPECTED = re.compile(r"^(?P<where>[^:]+: )?expected (?P<what>an? [^,:;(]*[^,:;( ])")


def short_reason(error_type: str, error_message: str, uri: str = "") -> str:
    """Return why a row was quarantined in a few words, such as `truncated PNG`, from its row in the quarantine.

    A message of another form is shortened. The file type in `uri` names the file if the message does not.
    """
    line = _PLACE.sub("", error_message.partition("\n")[0])
    is_cut = "truncated" in line
    if match := _WHOLE.search(line):
        return f"{'truncated' if is_cut else 'damaged'} {match[1]}"
    if "(0 bytes)" in line:
        return "empty file"
    if is_cut:
        suffix = PurePosixPath(uri).suffix.lstrip(".")
        return f"truncated {suffix.upper() if suffix.isalnum() else 'file'}"
    if match := _EXPECTED.match(line):
        return f"{match['where'] or ''}not {match['what']}"
    if error_type != "RowError" and not line.startswith(error_type):
        line = f"{error_type}: {line}"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def pattern(message: str, row: Mapping[str, Any]) -> str:
    """Return the first line of a message with its numbers, quoted values and the row's own names replaced."""
    line = message.partition("\n")[0][:300]
    for name in (row.get("uri"), row.get("row_id")):
        if name:
            line = line.replace(str(name), "*")
    return _NUMBER.sub("#", _QUOTED.sub("*", line))


def count_reasons(rows: Iterable[Mapping[str, str]]) -> list[tuple[str, int]]:
    """Return each short reason with its number of rows, the most frequent first. `rows` are rows of a quarantine."""
    reasons = (short_reason(row["error_type"], row["error_message"], row["uri"] or "") for row in rows)
    return Counter(reasons).most_common()


def told(reasons: Sequence[tuple[str, int]]) -> str:
    """Return the reasons of `count_reasons` as one text, such as `2 truncated PNG, 1 for other reasons`."""
    parts = [f"{count:,} {reason}" for reason, count in reasons[:TOLD]]
    remainder = sum(dict(reasons[TOLD:]).values())
    if remainder:
        parts.append(f"{remainder:,} for other reasons")
    return ", ".join(parts)
