"""Video files: one file, one row. Columns out: `row_id`, `uri`, `video` (binary, as encoded in the file), `label`."""

from typing import ClassVar, Literal

from overnight.tasks.ingest.source import GIB, MaxFileBytes
from overnight.tasks.ingest.sources.whole_files import WholeFiles


class Video(WholeFiles):
    """Every file below the directory with a known video extension."""

    kind: Literal["video"] = "video"
    max_file_bytes: MaxFileBytes = 4 * GIB

    column: ClassVar[str] = "video"
    extensions: ClassVar[tuple[str, ...]] = (
        *(".mp4", ".m4v", ".mov", ".mkv", ".webm", ".avi", ".mpg", ".mpeg", ".m2ts", ".mts"),
        *(".wmv", ".flv", ".ogv", ".3gp"),
    )
