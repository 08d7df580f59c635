"""Files of images, sound, video and PDF: one file, one row, with its unchanged bytes.

Columns out: `row_id`, `uri`, the contents (binary, called `image`, `audio`, `video` or `pdf`), `label`. A step decodes
the bytes; this file does not interpret them.
"""

from typing import ClassVar, Literal

from overnight.tasks.ingest.source import GIB, MaxFileBytes
from overnight.tasks.ingest.sources.whole_files import WholeFiles


class Images(WholeFiles):
    """Every file below the directory with a known image extension."""

    kind: Literal["images"] = "images"

    column: ClassVar[str] = "image"
    extensions: ClassVar[tuple[str, ...]] = (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp"),
        *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".heic", ".heif"),
    )


class Audio(WholeFiles):
    """Every file below the directory with a known audio extension."""

    kind: Literal["audio"] = "audio"
    max_file_bytes: MaxFileBytes = 4 * GIB

    column: ClassVar[str] = "audio"
    extensions: ClassVar[tuple[str, ...]] = (
        *(".wav", ".flac", ".mp3", ".m4a", ".aac", ".ogg", ".oga", ".opus", ".wma"),
        *(".aif", ".aiff", ".aifc", ".au", ".amr", ".caf"),
    )


class Video(WholeFiles):
    """Every file below the directory with a known video extension."""

    kind: Literal["video"] = "video"
    max_file_bytes: MaxFileBytes = 4 * GIB

    column: ClassVar[str] = "video"
    extensions: ClassVar[tuple[str, ...]] = (
        *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".m2ts", ".mts"),
        *(".wmv", ".flv", ".ogv", ".3gp"),
    )


class Pdf(WholeFiles):
    """Every file below the directory that ends in .pdf."""

    kind: Literal["pdf"] = "pdf"

    column: ClassVar[str] = "pdf"
    extensions: ClassVar[tuple[str, ...]] = (".pdf",)
