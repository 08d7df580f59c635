"""Group quarantined rows by their reason. Reasons that differ only in numbers, names or quoted values are one."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

SHOWN_ROWS = 4
_QUOTED = re.compile(r"b?'(?:[^'\\]|\\.)*'|b?\"(?:[^\"\\]|\\.)*\"")
_NUMBER = re.compile(r"(?<![A-Za-z_])-?\d[\d,.]*(?:e[+-]?\d+)?(?![A-Za-z_])|0x[0-9a-f]+")


@dataclass
class Reason:
    """A reason of quarantined rows: its stage and type, the message of one row, the number of rows, and some rows."""

    stage: str
    error_type: str
    message: str
    count: int = 0
    rows: list[Mapping[str, Any]] = field(default_factory=list)


def group_reasons(rows: Iterable[Mapping[str, Any]]) -> list[Reason]:
    """Return the reasons of the rows of a quarantine, the most frequent first."""
    reasons: dict[tuple[str, str, str], Reason] = {}
    for row in rows:
        message = str(row["error_message"] or "")
        kind = (str(row["stage"]), str(row["error_type"]), _pattern(message, row))
        reason = reasons.setdefault(kind, Reason(*kind[:2], message))
        reason.count += 1
        if len(reason.rows) < SHOWN_ROWS:
            reason.rows.append(row)
    return sorted(reasons.values(), key=lambda reason: -reason.count)


def _pattern(message: str, row: Mapping[str, Any]) -> str:
    """Return the first line of a message with its numbers, quoted values and the row's own names replaced."""
    line = message.partition("\n")[0][:1000]
    for name in (row.get("uri"), row.get("row_id")):
        if name:
            line = line.replace(str(name), "*")
    return _NUMBER.sub("#", _QUOTED.sub("*", line))
