"""Image files: one file, one row. Columns out: `row_id`, `uri`, `image` (binary, as encoded in the file), `label`.

The preprocess room decodes `image`; here nothing is known about what the bytes mean.
"""

from typing import ClassVar, Literal

from overnight.tasks.ingest.sources.whole_files import WholeFiles


class Images(WholeFiles):
    """Every file below the directory with a known image extension."""

    kind: Literal["images"] = "images"

    column: ClassVar[str] = "image"
    extensions: ClassVar[tuple[str, ...]] = (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp"),
        *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".heic", ".heif"),
    )
