"""Compare PDF files with pypdfium2: the text of each page with text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ours
from judging import Refused
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.media_files import Pdf
from overnight.tasks.preprocess.steps.pdf_text import PdfText

Page = tuple[int, str]


def read(path: Path) -> list[Any]:
    """Return the pages, each its number and its text."""
    [row] = ours.read(Pdf, path, [PdfText()])
    if isinstance(row, Refused):
        return [row]
    return list(zip(row["page"].to_pylist(), row["text"].to_pylist(), strict=True))


def by_pypdfium2(path: Path) -> Iterator[Page]:
    """Yield the pages with visible text, with hyphens at the ends of lines. Raise `ValueError` if there are none."""
    import pypdfium2

    with pypdfium2.PdfDocument(path) as document:
        found = [page.get_textpage() for page in document]
        texts = [page.get_text_range() if page.get_text_bounded().strip() else "" for page in found]
    written = [(number, text.replace("\ufffe", "-")) for number, text in enumerate(texts, 1) if text.strip()]
    if not written:
        raise ValueError(f"no text on {len(texts)} pages")
    yield from written


def differs(mine: Page, other: Page) -> str:
    """Return how the pages differ. Overnight appends the values of form fields, in lines of their own."""
    (number, text), (expected_number, expected) = mine, other
    if number == expected_number and (text == expected or text.startswith(expected + "\n")):
        return ""
    return f"expected page {expected_number} {expected!r:.200}, found page {number} {text!r:.200}"


KIND = Kind(
    "PDF files", ("sample-files", "pypdfium2/tests/resources"), ends_in(*Pdf.extensions), read, by_pypdfium2, differs
)
