"""Text files: one file, one row. Columns out: `row_id`, `uri`, `text` (string), `label`."""

import codecs
from encodings.aliases import aliases
from typing import Annotated, Any, ClassVar, Literal

import pyarrow as pa
from pydantic import Field, field_validator

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.sources.whole_files import WholeFiles

NO_CHARACTER_SETS = ("idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape")


class Text(WholeFiles):
    """Every file below the directory with a known text extension; one that is not in its encoding is quarantined."""

    kind: Literal["text"] = "text"
    encoding: Annotated[str, Field(description="The character set of the files, by Python's name.")] = "utf-8"

    column: ClassVar[str] = "text"
    type: ClassVar[pa.DataType] = pa.string()
    extensions: ClassVar[tuple[str, ...]] = (
        *(".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm", ".xml", ".tex"),
    )

    @field_validator("encoding")
    @classmethod
    def _is_of_text(cls, encoding: str) -> str:
        if not is_of_text(encoding):
            known = ", ".join(sorted(filter(is_of_text, {*aliases.values(), "utf_8_sig"})))
            raise ValueError(f"expected an encoding of text that Python knows ({known}), found {encoding!r}")
        return encoding

    def value(self, content: bytes) -> Any:
        # A byte order mark shows how to read the file, and is not part of its text.
        encoding = "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding
        return decoded(content, encoding)


def is_of_text(encoding: str) -> bool:
    """Return True if Python has a character set of the name `encoding`.

    Python has other encodings too, for which the result is False: base64, rot13 and escapes.
    """
    try:
        b"0".decode(encoding)  # not empty, because Python decodes zero bytes to a text in any encoding
    except UnicodeError:
        pass
    except (LookupError, ValueError):
        return False
    return codecs.lookup(encoding).name not in NO_CHARACTER_SETS


def decoded(content: bytes, encoding: str) -> str:
    """Return the bytes as text. Raise `RowError` if they are not text in this encoding."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        expected = encoding.removesuffix("-sig")
        found = f"{content[error.start : error.start + 16]!r} at byte {error.start}: {error.reason}"
        raise RowError(f"expected text in {expected}, found {found}. It is not text, or in another encoding") from error
