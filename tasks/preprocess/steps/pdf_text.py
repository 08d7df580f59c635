"""The text of PDF files, by PDFium: a file in, one row out for each page with text.

Column in: `column` (files). Columns out: `text` (string), `page` (int64, from 1 like in viewers) and `pages` (int64,
the number in the file). The text is all that a viewer shows of the page: its own text and that of annotations as PDFium
returns it, and then the values of form fields, one per line. `row_id` gets the page: `report.pdf#3`. No message and no
receipt contains a password.
"""

import ctypes
import io
import re
import threading
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pyarrow import types
from pydantic import Field, field_validator, model_validator

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

    can_be_remembered: ClassVar[bool] = True

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

    @model_validator(mode="after")
    def _what_is_remembered_has_no_passwords(self) -> Self:
        if self.remember and self.password_column is not None:
            raise ValueError("remember: expected no password_column beside it, because the step drops that column")
        return self

    def libraries(self) -> tuple[str, ...]:
        return LIBRARIES

    def column_effect(self) -> ColumnEffect:
        inputs = [self.column]
        if self.password_column is not None:
            inputs.append(self.password_column)
        return ColumnEffect(inputs, makes=COLUMNS.names, removes=inputs)

    def build(self) -> result.Work:
        pdfium, qpdf = (require_extra(name, "preprocess.kind: pdf_text", "preprocess") for name in self.libraries())
        shared_passwords = list(map(expand, _listed(self.password)))

        def work(table: pa.Table) -> result.Outcome:
            passwords = self._passwords(table)

            def pages(file: bytes, row: int) -> FileRows:
                return _pages(pdfium, qpdf, file, [*passwords[row], *shared_passwords])

            with ONE_AT_A_TIME:
                outcome = expand_files(table, self.column, EXPECTED, COLUMNS, pages)
            if self.password_column is not None:
                old_names = {self.password_column, *COLUMNS.names, *IDENTITY}
                outcome.order = [*(name for name in table.column_names if name not in old_names), *COLUMNS.names]
            return outcome

        return work

    def _passwords(self, table: pa.Table) -> list[list[str]]:
        """Return each row's own passwords. Raise `ContractError` if the column is missing or has no texts."""
        if self.password_column is None:
            return [[]] * len(table)
        require_columns(table, [self.password_column], "pdf_text: password_column")
        column = table[self.password_column]
        if not (types.is_string(column.type) or types.is_large_string(column.type) or types.is_null(column.type)):
            raise ContractError(
                f"pdf_text: expected texts in password_column {self.password_column!r}, found {column.type}.",
                "preprocess",
            )
        return [_listed(password or None) for password in column.to_pylist()]


def _listed(password: str | list[str] | None) -> list[str]:
    return [password] if isinstance(password, str) else password or []


def _pages(pdfium: Any, qpdf: Any, content: bytes, passwords: Sequence[str]) -> FileRows:
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
        columns: dict[str, list[Any]] = {"text": [], "page": [], "pages": []}
        for number in range(count):
            text = _text(pdfium, document, number, count)
            if text.strip():
                columns["text"].append(text)
                columns["page"].append(number + 1)
                columns["pages"].append(count)
    finally:
        document.close()
    if not columns["page"]:
        raise RowError(
            f"{EXPECTED} with text, found none on its {count} pages. If they are scanned, recognise their text before."
        )
    return FileRows(columns["page"], columns)


def _opened(pdfium: Any, qpdf: Any, content: bytes, passwords: Sequence[str]) -> Any:
    """Return the document, without a password or with the first that fits. Raise `RowError` if none does."""
    for password in (None, *passwords):
        try:
            document = pdfium.PdfDocument(content, password=password)
        except pdfium.PdfiumError as error:
            problem = _unreadable(content, error, len(passwords))
            if not _is_encrypted(content, error):
                break
        else:
            return _with_all_pages(pdfium, qpdf, document, content, password)
    raise problem


def _with_all_pages(pdfium: Any, qpdf: Any, document: Any, content: bytes, password: str | None) -> Any:
    """Return the document, or a copy without a password if qpdf finds more pages than the file declares."""
    try:
        with qpdf.open(io.BytesIO(content), password=password or "") as reader:
            if len(reader.pages) <= len(document):
                return document
            copy = io.BytesIO()
            reader.save(copy)
    except Exception:
        return document  # PDFium may read files that qpdf does not
    return pdfium.PdfDocument(copy.getvalue())


def _is_encrypted(content: bytes, error: Exception) -> bool:
    """Return True if no password so far opens the file. For a file without pages PDFium may report a password, too."""
    return b"/Encrypt" in content and "password" in str(error).lower()


def _text(pdfium: Any, document: Any, number: int, count: int) -> str:
    """Return the text of a page. One function of PDFium returns all line breaks, and also text outside the page.

    The other one omits line breaks, so that numbers run together; it is used only if there is text outside.
    """
    try:
        page = document[number]
        values, has_drawings = _take_annotations(pdfium.raw, document, page)
        if has_drawings:  # PDFium includes their text only in the text of a flattened page
            if pdfium.raw.FPDFPage_Flatten(page, pdfium.raw.FLAT_NORMALDISPLAY) == pdfium.raw.FLATTEN_FAIL:
                raise RowError(f"{EXPECTED}, found unreadable annotations on page {number + 1} of {count}")
            page.close()
            page = document[number]
        try:
            text_page = page.get_textpage()
            text = str(text_page.get_text_range()).replace(HYPHEN, "-")
            visible_text = str(text_page.get_text_bounded()).replace(HYPHEN_OF_VISIBLE, "-")
        finally:
            page.close()
    except pdfium.PdfiumError as error:
        raise RowError(f"{EXPECTED}, found an unreadable page {number + 1} of {count}: {error}") from error
    if _letters(text) != _letters(visible_text):
        text = visible_text
    return "\n".join(filter(None, [text, *values]))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def _take_annotations(raw: Any, document: Any, page: Any) -> tuple[list[str], bool]:
    """Return the visible texts that annotations hold as values, and remove these annotations from the page in memory.

    Also return True if other annotations stay, which draw their text.
    """
    values: list[str] = []
    has_drawings = False
    invisible = raw.FPDF_ANNOT_FLAG_HIDDEN | raw.FPDF_ANNOT_FLAG_NOVIEW
    for number in reversed(range(raw.FPDFPage_GetAnnotCount(page))):
        annotation = raw.FPDFPage_GetAnnot(page, number)
        try:
            value = _value(raw, document, annotation)
            is_visible = not raw.FPDFAnnot_GetFlags(annotation) & invisible
            draws = raw.FPDFAnnot_GetSubtype(annotation) not in (raw.FPDF_ANNOT_LINK, raw.FPDF_ANNOT_POPUP)
        finally:
            raw.FPDFPage_CloseAnnot(annotation)
        if value is None:
            has_drawings = has_drawings or (is_visible and draws)
            continue
        raw.FPDFPage_RemoveAnnot(page, number)
        if is_visible:
            values.insert(0, value.strip())
    return values, has_drawings


def _value(raw: Any, document: Any, annotation: Any) -> str | None:
    """Return the text of a form field, or of a text box that is not drawn. Return None for another annotation."""
    form, field = document.formenv, raw.FPDF_FORMFIELD_UNKNOWN
    if form:
        field = raw.FPDFAnnot_GetFormFieldType(form, annotation)
    is_text = field == raw.FPDF_FORMFIELD_TEXTFIELD
    is_list = field in (raw.FPDF_FORMFIELD_COMBOBOX, raw.FPDF_FORMFIELD_LISTBOX)
    if is_text and raw.FPDFAnnot_GetFormFieldFlags(form, annotation) & PASSWORD:
        return ""
    if is_list:
        options = range(raw.FPDFAnnot_GetOptionCount(form, annotation))
        selection = [option for option in options if raw.FPDFAnnot_IsOptionSelected(form, annotation, option)]
        labels = [_read(raw, raw.FPDFAnnot_GetOptionLabel, form, annotation, option) for option in selection]
        if labels:
            return "\n".join(labels)
    if is_text or is_list:
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
        if not passwords:
            return RowError(f"{EXPECTED}, found one that is encrypted and needs a password. Set password: ${{NAME}}")
        verdict = "the password does" if passwords == 1 else f"its {passwords} passwords do"
        return RowError(f"{EXPECTED}, found one that is encrypted, and {verdict} not open it")
    if b"startxref" not in content:
        return RowError(f"{EXPECTED}, found the beginning of one: its last part is missing after {len(content)} bytes")
    return RowError(f"{EXPECTED}, found {len(content)} bytes in which PDFium finds no page")
