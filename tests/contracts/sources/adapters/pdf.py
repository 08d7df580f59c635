"""PDF files, which Python writes and reads as bytes."""

from overnight.tasks.ingest.sources.media_files import Pdf
from tests.contracts.sources.whole_files import WholeFilesAdapter


class PdfFiles(WholeFilesAdapter):
    kind = "pdf"
    leaf = Pdf
    extension = ".pdf"
    contents = (b"", b"%PDF-1.7\n%%E", b"no PDF", bytes(range(256)))


ADAPTER = PdfFiles()
