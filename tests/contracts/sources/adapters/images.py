"""Image files, which Python writes and reads as bytes."""

from overnight.tasks.ingest.sources.media_files import Images
from tests.contracts.sources.whole_files import WholeFilesAdapter


class ImagesFiles(WholeFilesAdapter):
    kind = "images"
    leaf = Images
    extension = ".png"
    contents = (b"", b"\x89PNG\r\n\x1a\n", b"no image", bytes(range(256)))


ADAPTER = ImagesFiles()
