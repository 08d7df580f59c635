"""Files of sound, images, pages and video, which Python writes and reads as bytes."""

from overnight.tasks.ingest.sources.media_files import Audio, Images, Pdf, Video
from tests.contracts.sources.whole_files import WholeFilesAdapter


class AudioFiles(WholeFilesAdapter):
    kind, leaf, extension = "audio", Audio, ".wav"
    contents = (b"", b"RIFF\xff", b"no sound", bytes(range(256)))


class ImageFiles(WholeFilesAdapter):
    kind, leaf, extension = "images", Images, ".png"
    contents = (b"", b"\x89PNG\r\n\x1a\n", b"no image", bytes(range(256)))


class PdfFiles(WholeFilesAdapter):
    kind, leaf, extension = "pdf", Pdf, ".pdf"
    contents = (b"", b"%PDF-1.7\n%%E", b"no PDF", bytes(range(256)))


class VideoFiles(WholeFilesAdapter):
    kind, leaf, extension = "video", Video, ".mp4"
    contents = (b"", b"\0\0\0 ftyp", b"no video", bytes(range(256)))
