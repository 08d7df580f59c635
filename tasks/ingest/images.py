"""Image files: one file, one row. Columns out: `row_id`, `uri`, `image` (binary, as encoded in the file), `label`.

The preprocess room decodes `image`; here nothing is known about what the bytes mean. Files are fetched many at a time.
"""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from tasks import rows
from tasks.ingest.listing import file_units
from tasks.ingest.source import Source
from tasks.ingest.tables import is_damage
from tasks.ingest.versioned import read_whole
from tasks.storage import File

FILES_AT_ONCE = 128
BYTES_AT_ONCE = 16 * 2**20


class Images(Source):
    """Every file below the directory with a known image extension."""

    kind: Literal["images"] = "images"
    label_from: Annotated[
        Literal["parent"] | None, Field(description="parent: the name of the file's folder becomes column label.")
    ] = None

    extensions: ClassVar[tuple[str, ...]] = (
        *(".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".gif", ".bmp", ".webp"),
        *(".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".avif", ".heic", ".heif"),
    )

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, rows=1)

    def read(self, units: pa.Table, schema: pa.Schema | None) -> Iterator[pa.Table]:
        sizes = np.maximum(units["size"].to_numpy(), 1)
        groups = np.maximum(np.cumsum(sizes) // BYTES_AT_ONCE, np.arange(len(units)) // FILES_AT_ONCE)
        for group in np.unique(groups):
            yield from self._fetch(units.filter(pa.array(groups == group)))

    def _fetch(self, units: pa.Table) -> Iterator[pa.Table]:
        uris, paths = units["uri"].to_pylist(), units["path"].to_pylist()
        contents: list[Any] = read_whole([self.file(unit, unit["size"]) for unit in units.to_pylist()])
        good = [i for i, content in enumerate(contents) if isinstance(content, bytes)]
        bad = [i for i in range(len(contents)) if not isinstance(contents[i], bytes)]
        for i in bad:
            if not is_damage(contents[i]):
                raise contents[i]  # the storage failed, not the file: Ray Data retries, then the run fails
        numbers = units["unit"].to_numpy()
        if good:
            columns = {"row_id": [paths[i] for i in good], "uri": [uris[i] for i in good]}
            table = pa.table(
                {
                    **{name: pa.array(values, pa.string()) for name, values in columns.items()},
                    "image": pa.array([contents[i] for i in good], pa.large_binary()),
                    **({"label": pa.array([uris[i].split("/")[-2] for i in good])} if self.label_from else {}),
                }
            )
            yield rows.with_hidden(table, numbers[good], np.zeros(len(good), np.int64))
        for i in bad:
            identity = {"row_id": [paths[i]], "uri": [uris[i]]}
            yield rows.quarantined_block(identity, int(numbers[i]), [0], "ingest", [contents[i]])
