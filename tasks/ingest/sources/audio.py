"""Audio files: one file, one row. Columns out: `row_id`, `uri`, `audio` (binary, as encoded in the file), `label`."""

from typing import ClassVar, Literal

from overnight.tasks.ingest.source import GIB, MaxFileBytes
from overnight.tasks.ingest.sources.whole_files import WholeFiles


class Audio(WholeFiles):
    """Every file below the directory with a known audio extension."""

    kind: Literal["audio"] = "audio"
    max_file_bytes: MaxFileBytes = 4 * GIB

    column: ClassVar[str] = "audio"
    extensions: ClassVar[tuple[str, ...]] = (
        *(".wav", ".flac", ".mp3", ".m4a", ".aac", ".ogg", ".oga", ".opus", ".wma"),
        *(".aif", ".aiff", ".aifc", ".au", ".amr", ".caf"),
    )
