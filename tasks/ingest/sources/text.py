"""Text files: one file, one row. Columns out: `row_id`, `uri`, `text` (string), `label`."""

import codecs
from typing import Any, ClassVar, Literal

import pyarrow as pa

from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.text_encoding import Encoding
from overnight.tasks.ingest.sources.whole_files import WholeFiles


class Text(WholeFiles):
    """Every file below the directory with a known text extension; one that is not in its encoding is quarantined."""

    kind: Literal["text"] = "text"
    encoding: Encoding = "utf-8"

    column: ClassVar[str] = "text"
    type: ClassVar[pa.DataType] = pa.string()
    extensions: ClassVar[tuple[str, ...]] = (
        *(".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm", ".xml", ".tex"),
    )

    def value(self, content: bytes) -> Any:
        # A byte order mark shows how to read the file, and is not part of its text.
        encoding = "utf-8-sig" if codecs.lookup(self.encoding).name == "utf-8" else self.encoding
        return decoded(content, encoding)


def decoded(content: bytes, encoding: str) -> str:
    """Return the bytes as text. Raise `RowError` if they are not text in this encoding."""
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        excerpt = f"{content[error.start : error.start + 16]!r} at byte {error.start}: {error.reason}"
        sentence = f"expected text in {encoding.removesuffix('-sig')}"
        raise RowError(f"{sentence}, found {excerpt}. It is not text, or in another encoding") from error
