"""The image sink: a column of images as PNG or JPEG files, and the other columns in Parquet files beside them.

<path>/date=D/part-*-00000.parquet              the rows; `image_path`, relative to it, in the place of `image`
<path>/date=D/part-*-00000.images/cat/01.png    the images, each named by its row's `row_id`
"""

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field, model_validator

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS, readable_formats
from overnight.tasks.state.run import Run
from overnight.tasks.state.staged_parts import PART, Record
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.known_types import of_known_types
from overnight.tasks.write.merge.merge_parts import Prepared, merge, published_schema
from overnight.tasks.write.sink import ParquetCompression, as_paths, file_prefix
from overnight.tasks.write.sinks.hive_files import HiveFiles, make_place

if TYPE_CHECKING:
    from PIL import Image

ENDINGS = {"png": ".png", "jpeg": ".jpg"}
NAME_BYTES = 255 - 37  # the limit of a local disk, minus the suffix of a file that is being written
PATH_BYTES = 800  # object stores allow 1,024, with the folders before it
JPEG_PIXELS = 65_500  # per side
BEGINNINGS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}


class ImagesSink(HiveFiles):
    """Image files and an index of them on any filesystem."""

    kind: Literal["images"] = "images"
    column: Annotated[str, Field(description="The column of images; keep_columns need not name it.")] = "image"
    format: Annotated[Literal["png", "jpeg"], Field(description="The format of the image files.")] = "png"
    quality: Annotated[int, Field(ge=1, le=100, description="The quality of JPEG files.")] = 95
    compression: Annotated[ParquetCompression, Field(description="The compression of the Parquet files.")] = "zstd"

    operational: ClassVar[tuple[str, ...]] = ("column", "format", "quality", "compression")

    @model_validator(mode="before")
    @classmethod
    def _keeps_its_column(cls, settings: Any) -> Any:
        if not isinstance(settings, dict) or not isinstance(settings.get("keep_columns", []), list):
            return settings
        column, names = settings.get("column", "image"), settings.get("keep_columns", [])
        return settings if column in names else {**settings, "keep_columns": [*names, column]}

    def refuse_columns(self, run: Run, schema: pa.Schema) -> None:
        super().refuse_columns(run, schema)
        self._require_column(schema)
        if f"{self.column}_path" in schema.names:
            raise ContractError(
                f"column {f'{self.column}_path'!r}: the sink writes the paths of its images under this name. "
                "Rename the column where it is made, or give the images another name and set sink.column.",
                "write",
            )

    def take(self, table: pa.Table) -> None:
        super().take(table)
        paths = file_paths(table["row_id"].to_pylist(), ENDINGS[self.format])
        for path, image in zip(paths, table[self.column], strict=True):
            if image.is_valid:
                _refuse_long(path)
                _refuse_no_image(self.column, image, self.format)

    def published(self, run: Run, prepared: Prepared) -> list[str]:
        names = [file.name for file in prepared.files]
        return as_paths(run, [*names, *(name.replace(".parquet", ".images") for name in names)])

    def read(self, place: Location, receipt: Mapping[str, Any], columns: list[str] | None) -> Iterator[pa.Table]:
        """Yield the rows of the Parquet files, with the paths of the images."""
        files = [name for name in receipt["files"] if name.endswith(".parquet")]
        yield from super().read(place, {**receipt, "files": files}, columns)

    def recall(self, run: Run, receipt: Mapping[str, Any]) -> Prepared:
        """Prepare the images under new names, and an index with these names."""
        ready = super().recall(run, receipt)
        files = [file for file in ready.files if file.name.endswith(".parquet")]
        for file in files:
            with file.place.open() as content:
                rows = pq.ParquetFile(content).read()
            number = rows.schema.get_field_index(f"{self.column}_path")
            folder = file.name.replace(".parquet", ".images")
            if number >= 0:
                paths = pc.replace_substring_regex(rows[number], "^[^/]+", folder)
                rows = rows.set_column(number, f"{self.column}_path", paths)
            content = pa.BufferOutputStream()
            pq.write_table(rows, content, compression=self.compression)
            file.place.write_bytes(content.getvalue().to_pybytes())
        return replace(ready, files=files)

    def prepare(self, run: Run, records: list[Record], merged: pa.Table) -> Prepared:
        schema, folder, beside = of_known_types(published_schema(records), keep=self.column), make_place(run), None
        if schema.names:
            self._require_column(schema)
            beside = partial(_write_images, folder, self.column, self.format, self.quality)
        return merge(
            run.parts, records, merged, schema, folder, file_prefix(run), PART, self.compression, self.target_file_size,
            beside=beside,
        )  # fmt: skip

    def _require_column(self, schema: pa.Schema) -> None:
        if self.column not in schema.names:
            raise ContractError(
                f"sink.column: expected a column {self.column!r}, found {', '.join(schema.names)}.", "write"
            )


def _write_images(place: Location, column: str, kind: str, quality: int, rows: pa.Table, name: str) -> pa.Table:
    """Write the images of the rows into the folder of the named file; return the rows with paths instead."""
    paths, folder = file_paths(rows["row_id"].to_pylist(), ENDINGS[kind]) if len(rows) else [], f"{name}.images"

    def write(path: str, image: pa.Scalar) -> str | None:
        if not image.is_valid:
            return None
        try:
            content = _encoded(image, kind, quality)
        except (ValueError, TypeError, OSError) as error:
            raise ContractError(f"column {column!r}: {path} is not a writable image: {error}", "write") from error
        (place / f"{folder}{PART}" / path).write_bytes(content)
        return f"{folder}/{path}"

    filesystem, directory = (place / f"{folder}{PART}").open_filesystem()
    filesystem.makedirs(directory, exist_ok=True)  # the receipt lists it, also if every image is null
    with ThreadPoolExecutor(8) as pool:
        column_of_paths = pa.array(list(pool.map(write, paths, rows[column])), pa.string())
    return rows.set_column(rows.schema.get_field_index(column), f"{column}_path", column_of_paths)


def file_paths(row_ids: list[str], ending: str) -> list[str]:
    """Return a path for the image of each row, all different: the row's id, which ends in `ending`."""
    paths: dict[str, None] = {}
    for row_id in row_ids:
        parts = row_id.split("/")
        for number, part in enumerate(parts):
            if not part.strip("."):  # an empty name, or one that leads to another folder
                parts[number] = part.replace(".", "%2E") or "%"
        path = "/".join(parts)
        if not path.lower().endswith(ending):
            path += ending
        while path in paths:
            path += ending
        paths[path] = None
    return list(paths)


def _refuse_long(path: str) -> None:
    """Raise RowError for a path that no file can have: the row's name is too long."""
    longest = max(len(part.encode()) for part in path.split("/"))
    if longest > NAME_BYTES or len(path.encode()) > PATH_BYTES:
        raise RowError(
            f"row_id: expected at most {NAME_BYTES} bytes between slashes and {PATH_BYTES} in all, for its file, "
            f"found {longest} and {len(path.encode())}."
        )


def _refuse_no_image(column: str, image: pa.Scalar, kind: str) -> None:
    """Raise RowError for a value that cannot become an image file."""
    try:
        picture = _opened(image, kind)
        if kind == "jpeg" and not isinstance(picture, bytes) and max(picture.size) > JPEG_PIXELS:
            raise ValueError(f"{picture.width} x {picture.height} pixels, more than JPEG allows")
    except Exception as error:  # Pillow raises many kinds
        raise RowError(
            f"column {column!r}: expected an image, found a value that cannot be written: {error}"
        ) from error


def _opened(image: pa.Scalar, kind: str) -> "bytes | Image.Image":
    """Return the bytes of a file of this format unchanged; another file, or an array of uint8, as an image."""
    from PIL import Image

    if not pa.types.is_binary(image.type) and not pa.types.is_large_binary(image.type):
        return Image.fromarray(_pixels(image))
    content: bytes = image.as_py()
    if content.startswith(BEGINNINGS[kind]):
        return content
    picture = Image.open(io.BytesIO(content), formats=readable_formats())
    if picture.width * picture.height > MAX_IMAGE_PIXELS:
        raise ValueError(f"{picture.width} x {picture.height} pixels, more than {MAX_IMAGE_PIXELS}")
    picture.load()
    return picture


def _encoded(image: pa.Scalar, kind: str, quality: int) -> bytes:
    """Return the bytes of an image file. JPEG drops a transparency."""
    picture, options = _opened(image, kind), {}
    if isinstance(picture, bytes):
        return picture
    if kind == "jpeg":
        options["quality"] = quality
        if picture.mode not in ("L", "RGB"):
            picture = picture.convert("RGB")
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def _pixels(image: pa.Scalar) -> np.ndarray:
    """Return the array of nested lists, H x W, H x W x 3 or H x W x 4, without a last axis of one."""
    if not pa.types.is_nested(image.type) or pa.types.is_struct(image.type):
        raise ValueError(f"a value of {image.type}")
    values = image.values
    lengths = [len(values)]
    while pa.types.is_nested(values.type):
        values = values.flatten()
        lengths.append(len(values))
    if values.type != pa.uint8() or not lengths[-1]:
        raise ValueError(f"expected pixels of uint8, found {lengths[-1]} values of {values.type}")
    shape = [lengths[0], *(after // before for before, after in pairwise(lengths))]
    pixels = values.to_numpy(zero_copy_only=False).reshape(shape)
    return pixels[..., 0] if pixels.ndim == 3 and shape[-1] == 1 else pixels
