"""The reasons of quarantined rows in a few words: `1 truncated PNG, 1 not an image`."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import PurePosixPath

LONGEST, TOLD = 60, 3
_PLACE = re.compile(r" \([^()]*:\d+, in [^()]*\)$")  # the line of the user's code, which `error_message` adds
_WHOLE = re.compile(r"expected a whole (\w+) ")
_EXPECTED = re.compile(r"^(?P<where>[^:]+: )?expected (?P<what>an? [^,:;(]*[^,:;( ])")


def short_reason(error_type: str, error_message: str, uri: str = "") -> str:
    """Return why a row was quarantined in a few words, such as `truncated PNG`, from its row in the quarantine.

    A message that is not among the known forms is cut after `LONGEST` characters. The file type in `uri` names the file
    if the message does not.
    """
    line = _PLACE.sub("", error_message.partition("\n")[0])
    is_cut = "truncated" in line
    if found := _WHOLE.search(line):
        return f"{'truncated' if is_cut else 'damaged'} {found[1]}"
    if "(0 bytes)" in line:
        return "empty file"
    if is_cut:
        suffix = PurePosixPath(uri).suffix.lstrip(".")
        return f"truncated {suffix.upper() if suffix.isalnum() else 'file'}"
    if found := _EXPECTED.match(line):
        return f"{found['where'] or ''}not {found['what']}"
    whole = line if error_type == "RowError" or line.startswith(error_type) else f"{error_type}: {line}"
    return whole if len(whole) <= LONGEST else f"{whole[: LONGEST - 1]}…"


def count_reasons(rows: Iterable[Mapping[str, str]]) -> list[tuple[str, int]]:
    """Return each short reason with its number of rows, the most frequent first. `rows` are rows of a quarantine."""
    found = (short_reason(row["error_type"], row["error_message"], row["uri"] or "") for row in rows)
    return Counter(found).most_common()


def told(reasons: Sequence[tuple[str, int]]) -> str:
    """Return the most frequent reasons, and the number of rows with other reasons, as one text.

    `reasons` are from `count_reasons`. An example of the text is `2 truncated PNG, 1 not an image`.
    """
    parts = [f"{count:,} {reason}" for reason, count in reasons[:TOLD]]
    others = sum(count for _, count in reasons[TOLD:])
    return ", ".join([*parts, *([f"{others:,} for other reasons"] if others else [])])
