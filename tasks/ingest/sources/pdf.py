"""PDF files: one file, one row. Columns out: `row_id`, `uri`, `pdf` (binary, the file), `label`."""

from typing import ClassVar, Literal

from overnight.tasks.ingest.sources.whole_files import WholeFiles


class Pdf(WholeFiles):
    """Every file below the directory that ends in .pdf."""

    kind: Literal["pdf"] = "pdf"

    column: ClassVar[str] = "pdf"
    extensions: ClassVar[tuple[str, ...]] = (".pdf",)
