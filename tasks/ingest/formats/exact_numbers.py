"""Whether a float64 has all the digits of a number that was written. It knows nothing of columns."""

import re

_NO_DIGITS = re.compile(r"[eE].*|[^0-9]")
_MOST_DIGITS = 767  # of a float64, written out


def is_exact(text: str, value: float) -> bool:
    """Return whether `value`, written with as many digits as `text` has, is written with the same ones.

    0.10000000000000001 is 0.1 with 17 digits. 9007199254740993 is no float64: the nearest one ends in 2.
    """
    digits = _NO_DIGITS.sub("", text).strip("0")
    written = f"{value:.{min(max(len(digits), 1), _MOST_DIGITS) - 1}e}".partition("e")[0]
    return digits == _NO_DIGITS.sub("", written).strip("0")
