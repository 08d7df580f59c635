"""The setting of a file's character set, and the bytes of a file as UTF-8.

The readers of CSV and JSON Lines look for bytes of UTF-8, such as line ends.
"""

import codecs
from encodings.aliases import aliases
from typing import Annotated, Any

from pydantic import AfterValidator, Field

NO_CHARACTER_SETS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")
NO_CHARACTER = "\udcff"  # becomes a byte that is not UTF-8, so that only its row is bad


def is_of_text(encoding: str) -> bool:
    """Return True if Python has a character set of the name `encoding`."""
    try:
        # not empty, because Python decodes zero bytes to a text in any encoding
        b"0".decode(encoding)
    except UnicodeError:
        pass
    except (LookupError, ValueError):
        return False
    return codecs.lookup(encoding).name not in NO_CHARACTER_SETS


def _of_text(encoding: str) -> str:
    if not is_of_text(encoding):
        known = ", ".join(sorted(filter(is_of_text, {*aliases.values(), "utf_8_sig"})))
        raise ValueError(f"expected an encoding of text that Python knows ({known}), found {encoding!r}")
    return encoding


Encoding = Annotated[
    str, AfterValidator(_of_text), Field(description="The character set of the files, by Python's name.")
]


class Recoded:
    """A stream of the text of `handle`, which is in `encoding`, as UTF-8. Bytes without a character are not UTF-8."""

    def __init__(self, handle: Any, encoding: str) -> None:
        codecs.register_error("overnight-mark", lambda error: (NO_CHARACTER, error.end))  # type: ignore[attr-defined]
        self._handle = handle
        self._decoder = codecs.getincrementaldecoder(encoding)("overnight-mark")

    def read(self, size: int) -> bytes:
        """Return the text of the next `size` bytes; none at the end."""
        text = ""
        while not text and (piece := self._handle.read(size)):
            text = self._decoder.decode(piece)
        if not text:
            text = self._decoder.decode(b"", final=True)
        return text.encode(errors="surrogateescape")


def recoded(handle: Any, encoding: str) -> Any:
    """Return a stream of the text of `handle` as UTF-8; `handle` itself if `encoding` is UTF-8."""
    return handle if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig") else Recoded(handle, encoding)
