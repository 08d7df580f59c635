"""The text of PDF files, by PDFium: a file in, a row out for each page that has text.

Column in: `column` (binary). Columns out: `text` (string, as PDFium gives it; what is filled into a form follows, a
field a line), `page` (int64, from 1 as viewers count) and `pages` (int64, how many the file has); the bytes end here.
`row_id` gets the page: `report.pdf#3`. A file without any text, of scanned pages perhaps, is quarantined, as is one
that needs a password or has a page that cannot be read.
"""

import ctypes
import threading
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.file_rows import FileRows, expand_files
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result

COLUMNS = pa.schema([("text", pa.string()), ("page", pa.int64()), ("pages", pa.int64())])
EXPECTED = "pdf_text: expected a PDF file"
PASSWORD = 1 << 13  # of a text field; ISO 32000-1, table 228
HYPHEN, HYPHEN_OF_VISIBLE = "\ufffe", "\x02"  # no characters of a text
ONE_AT_A_TIME = threading.Lock()  # PDFium is not safe for threads


class PdfText(PreprocessStep):
    """Makes a row of each page of a PDF file that has text."""

    kind: Literal["pdf_text"] = "pdf_text"
    column: Annotated[str, Field(description="The column with the PDF files.")] = "pdf"

    rows_at_once = 4

    def build(self) -> result.Work:
        pdfium = require_extra("pypdfium2", "preprocess.kind: pdf_text", "preprocess")

        def work(table: pa.Table) -> result.Outcome:
            with ONE_AT_A_TIME:
                return expand_files(table, self.column, EXPECTED, COLUMNS, lambda content: _pages(pdfium, content))

        return work


def _pages(pdfium: Any, content: bytes) -> FileRows:
    try:
        document = pdfium.PdfDocument(content)
    except pdfium.PdfiumError as error:
        raise _unreadable(content, error) from error
    try:
        try:
            document.init_forms()  # nothing where it has none
        except pdfium.PdfiumError as error:
            raise RowError(f"{EXPECTED}, found that its form cannot be read: {error}") from error
        count = len(document)
        texts = [_text(pdfium, document, number, count) for number in range(count)]
    finally:
        document.close()
    written = [(text, number) for number, text in enumerate(texts, 1) if text.strip()]
    if not written:
        raise RowError(
            f"{EXPECTED} with text, found none on its {count} pages. If they are scanned, recognise their text before."
        )
    pages = [number for _, number in written]
    return FileRows(pages, {"text": [text for text, _ in written], "page": pages, "pages": [count] * len(written)})


def _text(pdfium: Any, document: Any, number: int, count: int) -> str:
    try:
        page = document[number]
        try:
            text = _written(page.get_textpage())
            return "\n".join(filter(None, [text, *_filled_in(pdfium.raw, document, page)]))
        finally:
            page.close()
    except pdfium.PdfiumError as error:
        raise RowError(f"{EXPECTED}, found that page {number + 1} of {count} cannot be read: {error}") from error


def _written(page: Any) -> str:
    """The text of a page, as it is there.

    PDFium has two ways to give it. One has all line breaks, and text that lies outside the page too. The other leaves
    line breaks out, so that numbers run together: it is taken only where there is such text. Both give a mark
    of their own for a hyphen that ends a line.
    """
    everywhere = str(page.get_text_range()).replace(HYPHEN, "-")
    visible = str(page.get_text_bounded()).replace(HYPHEN_OF_VISIBLE, "-")
    return everywhere if _letters(everywhere) == _letters(visible) else visible


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _filled_in(raw: Any, document: Any, page: Any) -> Iterator[str]:
    """What a reader sees in the fields of a page's form that hold text; PDFium does not count it as the page's text."""
    if not document.formenv:
        return
    kinds = (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
    for place in range(raw.FPDFPage_GetAnnotCount(page)):
        field = raw.FPDFPage_GetAnnot(page, place)
        try:
            if raw.FPDFAnnot_GetFormFieldType(document.formenv, field) not in kinds:
                continue
            is_hidden = raw.FPDFAnnot_GetFlags(field) & (raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW)
            is_password = raw.FPDFAnnot_GetFormFieldFlags(document.formenv, field) & PASSWORD
            if not is_hidden and not is_password:
                yield _value(raw, document, field).strip()
        finally:
            raw.FPDFPage_CloseAnnot(field)


def _value(raw: Any, document: Any, field: Any) -> str:
    size = raw.FPDFAnnot_GetFormFieldValue(document.formenv, field, None, 0)  # in bytes, with two of an end
    buffer = ctypes.create_string_buffer(size)
    units = ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR))
    raw.FPDFAnnot_GetFormFieldValue(document.formenv, field, units, size)
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", errors="replace")


def _unreadable(content: bytes, error: Exception) -> RowError:
    """In PDFium's own words only where these are right: for a file without pages it may speak of a password."""
    if b"%PDF-" not in content[:1024]:
        return RowError(f"{EXPECTED}, found {len(content)} bytes that begin with {content[:16]!r}")
    if b"/Encrypt" in content and "password" in str(error).lower():
        return RowError(f"{EXPECTED}, found one that is encrypted and needs a password")
    if b"startxref" not in content:
        return RowError(f"{EXPECTED}, found the beginning of one: its last part is missing after {len(content)} bytes")
    return RowError(f"{EXPECTED}, found {len(content)} bytes of which PDFium reads no page")
