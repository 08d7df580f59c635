"""The text of PDF files, by PDFium: a file in, one row out for each page with text.

PDFium believes the number of pages that a file declares. If qpdf finds more pages, all of them are read.

Column in: `column` (files). Columns out: `text` (string), `page` (int64, from 1 like in viewers) and `pages` (int64,
the number in the file). The text is all that a viewer shows of the page: its own text and that of annotations (text
boxes, stamps, ticked boxes) as PDFium returns it, and then the values of form fields, one per line. Comments that a
viewer shows in a window of their own are not part of it. The bytes are dropped. `row_id` gets the page: `report.pdf#3`.
A file is quarantined if it has no text (perhaps scanned pages), is encrypted and no given password opens it, has an
unreadable page, or is a form whose pages only Adobe's programs can show (dynamic XFA).

Passwords are in environment variables of the workers, or in a column, which is dropped. No message and no receipt
contains one.
"""

import ctypes
import io
import re
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import pyarrow as pa
from pyarrow import types
from pydantic import Field, field_validator

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.preprocess.input_columns import FileRows, expand_files, require_columns
from overnight.tasks.preprocess.step import PreprocessStep
from overnight.tasks.rows import result
from overnight.tasks.rows.blocks import IDENTITY
from overnight.tasks.rows.column_effect import ColumnEffect
from overnight.tasks.storage.location import expand

COLUMNS = pa.schema([("text", pa.string()), ("page", pa.int64()), ("pages", pa.int64())])
LIBRARIES = ("pypdfium2", "pikepdf")
EXPECTED = "pdf_text: expected a PDF file"
PASSWORD = 1 << 13  # a flag of text fields; ISO 32000-1, table 228
HYPHEN, HYPHEN_OF_VISIBLE = "\ufffe", "\x02"  # never characters of a text
VARIABLE = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
ONE_AT_A_TIME = threading.Lock()  # PDFium is not thread-safe


class PdfText(PreprocessStep):
    """Makes a row of each page of a PDF file that has text."""

    kind: Literal["pdf_text"] = "pdf_text"
    column: Annotated[str, Field(description="The column with the PDF files.")] = "pdf"
    password: Annotated[
        str | list[str] | None,
        Field(
            description="Opens encrypted files: ${NAME} for an environment variable on the workers, or a list to try.",
            examples=["${PDF_PASSWORD}"],
        ),
    ] = None
    password_column: Annotated[
        str | None, Field(description="The column with each file's own password, tried first. It is dropped.")
    ] = None

    rows_at_once = 4

    @field_validator("password")
    @classmethod
    def _is_not_written_out(cls, password: str | list[str] | None) -> str | list[str] | None:
        if not all(map(VARIABLE.fullmatch, _listed(password))):
            raise ValueError(
                "expected ${NAME} for an environment variable that holds the password, found one that is written out"
            )
        return password

    def libraries(self) -> tuple[str, ...]:
        return LIBRARIES

    def column_effect(self) -> ColumnEffect:
        read = [self.column, *([self.password_column] if self.password_column else [])]
        return ColumnEffect(read, makes=COLUMNS.names, removes=read)

    def build(self) -> result.Work:
        pdfium, qpdf = (require_extra(name, "preprocess.kind: pdf_text", "preprocess") for name in self.libraries())
        for_all = [expand(variable) for variable in _listed(self.password)]

        def work(table: pa.Table) -> result.Outcome:
            own = self._passwords(table)

            def pages(content: bytes, row: int) -> FileRows:
                return _pages(pdfium, qpdf, content, [own[row], *for_all] if own[row] else for_all)

            with ONE_AT_A_TIME:
                made = expand_files(table, self.column, EXPECTED, COLUMNS, pages)
            if self.password_column is not None:
                gone = {self.password_column, *COLUMNS.names, *IDENTITY}
                made.order = [*(name for name in table.column_names if name not in gone), *COLUMNS.names]
            return made

        return work

    def _passwords(self, table: pa.Table) -> list[str | None]:
        """Return each row's own password. Raise `ContractError` if the column is missing or has no texts."""
        if self.password_column is None:
            return [None] * len(table)
        require_columns(table, [self.password_column], "pdf_text: password_column")
        column = table[self.password_column]
        if not (types.is_string(column.type) or types.is_large_string(column.type) or types.is_null(column.type)):
            raise ContractError(
                f"pdf_text: expected texts in password_column {self.password_column!r}, found {column.type}.",
                "preprocess",
            )
        found: list[str | None] = column.to_pylist()
        return found


def _listed(password: str | list[str] | None) -> list[str]:
    return [password] if isinstance(password, str) else password or []


def _pages(pdfium: Any, qpdf: Any, content: bytes, passwords: Sequence[str | None]) -> FileRows:
    document = _opened(pdfium, qpdf, content, passwords)
    try:
        if document.get_formtype() == pdfium.raw.FORMTYPE_XFA_FULL:
            raise RowError(
                f"{EXPECTED}, found a dynamic XFA form, whose pages only Adobe's programs show. Print it there"
            )
        try:
            document.init_forms()  # does nothing without a form
        except pdfium.PdfiumError as error:
            raise RowError(f"{EXPECTED}, found an unreadable form: {error}") from error
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


def _opened(pdfium: Any, qpdf: Any, content: bytes, passwords: Sequence[str | None]) -> Any:
    """Return the document, without a password or with the first that fits. Raise `RowError` if none does."""
    for password in (None, *passwords):
        try:
            document = pdfium.PdfDocument(content, password=password)
        except pdfium.PdfiumError as error:
            problem = _unreadable(content, error, len(passwords))
            if not _is_encrypted(content, error):
                break
        else:
            corrected = _corrected(qpdf, content, password, len(document))
            return document if corrected is None else pdfium.PdfDocument(corrected)
    raise problem


def _corrected(qpdf: Any, content: bytes, password: str | None, count: int) -> bytes | None:
    """Return a copy of the file that declares all its pages, without a password. Return None if `count` is right."""
    try:
        with qpdf.open(io.BytesIO(content), password=password or "") as document:
            if len(document.pages) <= count:
                return None
            copy = io.BytesIO()
            document.save(copy)
            return copy.getvalue()
    except Exception:
        return None  # PDFium may read files that qpdf does not


def _is_encrypted(content: bytes, error: Exception) -> bool:
    """Return True if no password so far opens the file. For a file without pages PDFium may report a password, too."""
    return b"/Encrypt" in content and "password" in str(error).lower()


def _text(pdfium: Any, document: Any, number: int, count: int) -> str:
    try:
        page = document[number]
        values, is_drawn_on = _taken_annotations(pdfium.raw, document, page)
        if is_drawn_on:
            if pdfium.raw.FPDFPage_Flatten(page, pdfium.raw.FLAT_NORMALDISPLAY) == pdfium.raw.FLATTEN_FAIL:
                raise RowError(f"{EXPECTED}, found unreadable annotations on page {number + 1} of {count}")
            page.close()
            page = document[number]
        try:
            return "\n".join(filter(None, [_written(page.get_textpage()), *values]))
        finally:
            page.close()
    except pdfium.PdfiumError as error:
        raise RowError(f"{EXPECTED}, found an unreadable page {number + 1} of {count}: {error}") from error


def _written(page: Any) -> str:
    """Return the text of a page.

    PDFium has two functions for it. One returns all line breaks, and also text outside the page. The other omits line
    breaks, so that numbers run together; it is used only if there is text outside. Each returns its own mark for a
    hyphen at the end of a line.
    """
    everywhere = str(page.get_text_range()).replace(HYPHEN, "-")
    visible = str(page.get_text_bounded()).replace(HYPHEN_OF_VISIBLE, "-")
    return everywhere if _letters(everywhere) == _letters(visible) else visible


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _taken_annotations(raw: Any, document: Any, page: Any) -> tuple[list[str], bool]:
    """Return the visible texts that annotations hold as values, and remove these annotations from the page in memory.

    Also return True if other annotations stay, which draw their text. PDFium includes it only in the text of a
    flattened page.
    """
    values: list[str] = []
    is_drawn_on = False
    for place in reversed(range(raw.FPDFPage_GetAnnotCount(page))):
        annotation = raw.FPDFPage_GetAnnot(page, place)
        try:
            value = _value(raw, document, annotation)
            is_shown = not raw.FPDFAnnot_GetFlags(annotation) & (
                raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
            )
            draws = raw.FPDFAnnot_GetSubtype(annotation) not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
        if value is None:
            is_drawn_on = is_drawn_on or (is_shown and draws)
            continue
        raw.FPDFPage_RemoveAnnot(page, place)
        if is_shown:
            values.append(value.strip())
    return values[::-1], is_drawn_on


def _value(raw: Any, document: Any, annotation: Any) -> str | None:
    """Return the text of a form field, or of a text box that is not drawn. Return None for another annotation."""
    form, none = document.formenv, raw.FPDF_FORMFIELD_UNKNOWN
    field = raw.FPDFAnnot_GetFormFieldType(form, annotation) if form else none
    if field == raw.FPDF_FORMFIELD_TEXTFIELD and raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & PASSWORD:
        return ""
    if field in (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
        options = range(raw.FPDFAnnot_GetOptionCount(form, annotation))
        chosen = [option for option in options if raw.FPDFAnnot_IsOptionSelected(form, annotation, option)]
        if chosen:
            return "\n".join(_read(raw, raw.FPDFAnnot_GetOptionLabel, form, annotation, option) for option in chosen)
    if field in (raw.FPDF_FORMFIELD_TEXTFIELD, raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX):
        return _read(raw, raw.FPDFAnnot_GetFormFieldValue, form, annotation)
    is_text_box = raw.FPDFAnnot_GetSubtype(annotation) == raw.FPDF_ANNOT_FREETEXT
    if is_text_box and not _read(raw, raw.FPDFAnnot_GetAP, annotation, raw.FPDF_ANNOT_APPEARANCEMODE_NORMAL):
        return _read(raw, raw.FPDFAnnot_GetStringValue, annotation, b"Contents")
    return None


def _read(raw: Any, function: Callable[..., int], *arguments: Any) -> str:
    """Return the text that a function of PDFium writes into a buffer as UTF-16, with two bytes for the end."""
    size = function(*arguments, None, 0)
    buffer = ctypes.create_string_buffer(size)
    function(*arguments, ctypes.cast(buffer, ctypes.POINTER(raw.FPDF_WCHAR)), size)
    return buffer.raw[: max(size - 2, 0)].decode("utf-16-le", errors="replace")


def _unreadable(content: bytes, error: Exception, passwords: int) -> RowError:
    """Return the reason that no document can be opened."""
    if b"%PDF-" not in content[:1024]:
        return RowError(f"{EXPECTED}, found {len(content)} bytes that begin with {content[:16]!r}")
    if _is_encrypted(content, error):
        if passwords:
            tried = "the password does" if passwords == 1 else f"its {passwords} passwords do"
            return RowError(f"{EXPECTED}, found one that is encrypted, and {tried} not open it")
        return RowError(f"{EXPECTED}, found one that is encrypted and needs a password. Set password: ${{NAME}}")
    if b"startxref" not in content:
        return RowError(f"{EXPECTED}, found the beginning of one: its last part is missing after {len(content)} bytes")
    return RowError(f"{EXPECTED}, found {len(content)} bytes in which PDFium finds no page")
