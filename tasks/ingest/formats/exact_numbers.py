"""The check that a float64 has all the digits of a written number. It does not use columns."""

import re

_NO_DIGITS = re.compile(r"[eE].*|[^0-9]")
_MOST_DIGITS = 767  # of a float64 that is written in full


def is_exact(text: str, value: float) -> bool:
    """Return True if the number `text` and its float `value` have the same digits, when both are written with as many.

    0.10000000000000001 is exact, because it is 0.1 with 17 digits. 9007199254740993 is not: the nearest float64 ends in
    2.
    """
    digits = _NO_DIGITS.sub("", text).strip("0")
    written = f"{value:.{min(max(len(digits), 1), _MOST_DIGITS) - 1}e}".partition("e")[0]
    return digits == _NO_DIGITS.sub("", written).strip("0")
