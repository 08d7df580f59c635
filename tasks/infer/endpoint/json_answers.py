"""The parts that JSON answers of endpoints share: an error with status 200, and counts of tokens."""

import json
from typing import Any

from overnight.tasks.infer.endpoint.faults import Blame, Fault, fault_in, words_of_text

MOST_TOKENS = 2**63 - 1


def payload_of(content: bytes, expected: str) -> Any:
    """Return the JSON of an answer. Raise `Fault` for an error with status 200, and for other content."""
    try:
        payload = json.loads(content)
    except (ValueError, RecursionError):
        raise not_an_answer(words_of_text(content[:2000].decode(errors="replace")), expected) from None
    if isinstance(payload, dict) and payload.get("error"):
        raise fault_in(payload["error"])
    return payload


def not_an_answer(found: Any, expected: str) -> Fault:
    """Return the fault of other content with status 200, such as a web page."""
    return Fault(Blame.SERVER, f"expected {expected}, found {str(found)[:80]!r}")


def tokens_in(payload: Any, *names: str) -> int | None:
    """Return the first of these counts in `usage` of an answer; None if the endpoint did not count."""
    return count_in(payload.get("usage"), *names) if isinstance(payload, dict) else None


def count_in(fields: Any, *names: str) -> int | None:
    """Return the first of these fields of an object that is a count; None without one."""
    for name in names:
        value = fields.get(name) if isinstance(fields, dict) else None
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MOST_TOKENS:
            return int(value)  # not NaN, which is in no range
    return None
