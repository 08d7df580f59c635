"""Decode one image file: bytes in, uint8 H x W x 3 RGB out, upright by its EXIF orientation.

Colours become RGB as in Pillow's `convert("RGB")`: grey is repeated, palettes are looked up, CMYK has no profile. Alpha
is dropped, so that the colours under transparent pixels show. 16-bit channels keep their high byte, while Pillow itself
would clip. The first frame of an animation is used. A truncated file is an error, unless all of its pixels are there.
"""

import contextlib
import io
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.rows.image_formats import FORMATS, readable_formats

HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")  # ISO/IEC 23008-12, annex B
ORIENTATION = 0x0112
IMAGE_LENGTH = 257  # TIFF's tag of the height, before the image is turned upright
CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a PNG file, by its type of colour
BYTES_AT_ONCE = 2**20

MaxImagePixels = Annotated[
    PositiveInt, Field(description="Images of more pixels are quarantined before they are decoded.")
]


def allow_pixels(max_image_pixels: int) -> None:
    """Let Pillow in this process decode images of this many pixels, and HEIF images if pillow_heif is installed."""
    from PIL import Image, ImageFile

    with contextlib.suppress(ImportError):  # `decode_image` reports it when an image needs it
        from pillow_heif import register_heif_opener

        register_heif_opener()
    # some libraries switch it on, and half an image turns grey
    ImageFile.LOAD_TRUNCATED_IMAGES = False
    if Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, max_image_pixels)


def decode_image(encoded: pa.Buffer | None, max_image_pixels: int) -> np.ndarray:
    """Decode one image file, and return it upright as uint8 H x W x 3, RGB.

    Raise `RowError` for another file or too many pixels, and `JobError` for a HEIF image without pillow_heif.
    """
    from PIL import Image, UnidentifiedImageError

    if encoded is None:
        raise RowError("expected an encoded image, found null")
    if not encoded.size:
        raise RowError("expected an encoded image, the file is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(encoded), formats=readable_formats()) as image:
            return _pixels(image, encoded, max_image_pixels)
    except RowError:
        raise
    except UnidentifiedImageError as error:
        raise _unidentified(encoded) from error
    except Image.DecompressionBombError as error:  # of Pillow's limit, which is twice the one that is set
        size = re.search(r"\d+", str(error))
        pixels = f"{size.group()} pixels" if size else str(error)
        raise RowError(f"expected at most max_image_pixels = {max_image_pixels} pixels, found {pixels}") from error
    except Exception as error:
        raise RowError(f"expected an image, found {encoded.size} bytes that do not decode: {error}") from error


def _pixels(image: Any, encoded: pa.Buffer, max_image_pixels: int) -> np.ndarray:
    if image.width * image.height > max_image_pixels:
        raise RowError(
            f"expected at most max_image_pixels = {max_image_pixels} pixels, "
            f"found {image.width} x {image.height} = {image.width * image.height}"
        )
    prefix = f"expected a whole {image.format} image of {image.width} x {image.height}"
    tiles = list(image.tile)  # Pillow removes them when it loads the image
    try:
        image.load()
    except Exception as error:
        raise RowError(f"{prefix}, found {encoded.size} bytes that do not decode: {error}") from error
    if problem := _missing_lines(image, tiles, encoded):
        raise RowError(f"{prefix}, {problem}")
    rgb = _rgb(image)
    return upright(np.asarray(rgb), orientation_of(rgb))


def _unidentified(encoded: pa.Buffer) -> RowError:
    from PIL import Image

    start = bytes(encoded[:16])
    if start[4:8] == b"ftyp" and start[8:12] in HEIF_BRANDS:
        require_extra("pillow_heif", "a HEIF image", "preprocess")
    content = f"found {encoded.size} bytes that begin with {start!r}"
    for name in FORMATS:
        accepts = Image.OPEN[name][1] if name in Image.OPEN else None
        if accepts and accepts(start) is True:
            return RowError(f"expected a whole {name} image, {content} and have no header that can be read")
    return RowError(f"expected an image ({', '.join(FORMATS)}), {content}")


def _missing_lines(image: Any, tiles: Sequence[Any], encoded: pa.Buffer) -> str:
    """Return a text such as `found 3 of its 8 lines`, or an empty text if the image has all its lines.

    Pillow leaves lines black if the data of a PNG file, or the strips of a TIFF file (`tiles`), end before the height.
    """
    height = count = image.height
    if image.format == "TIFF" and tiles:
        height, count = int(image.tag_v2[IMAGE_LENGTH]), max(extents[3] for _, extents, *_ in tiles)
    elif image.format == "PNG":
        last_line = image.crop((0, height - 1, image.width, height))
        if last_line.getbbox(alpha_only=False) is None:
            count = _lines_of_png(memoryview(encoded))
    return f"found {count} of its {height} lines" if count < height else ""


def _lines_of_png(content: memoryview) -> int:
    """Count the lines in the compressed data; for an interlaced file, whose lines come in any order, return the height.

    https://www.w3.org/TR/png-3/#7Scanline
    """
    width, height, depth, colour, _, _, interlacing = struct.unpack_from(">IIBBBBB", content, 16)
    if interlacing:
        return int(height)
    line_bytes = 1 + (width * CHANNELS[colour] * depth + 7) // 8
    inflating, count = zlib.decompressobj(), 0
    with contextlib.suppress(zlib.error):
        for chunk in _png_data(content):
            data: bytes | memoryview = chunk
            while data and count < height * line_bytes:
                count += len(inflating.decompress(data, BYTES_AT_ONCE))
                data = inflating.unconsumed_tail
    return count // line_bytes


def _png_data(content: memoryview) -> Iterator[memoryview]:
    start = 8
    while start + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, start)
        if kind == b"IDAT":
            yield content[start + 8 : start + 8 + size]
        start += 12 + size


def _rgb(image: Any) -> Any:
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise RowError(
            f"expected 8 or 16 bits per channel, found {image.format} with 32 (mode {image.mode}) of unknown range"
        )
    # alpha is dropped; Pillow would warn about palettes with it
    image.info.pop("transparency", None)
    return image.convert("RGB")


def upright(image: np.ndarray, orientation: int) -> np.ndarray:
    """Turn and mirror pixels by the EXIF orientation, from 1 to 8."""
    if orientation > 4:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return np.ascontiguousarray(image)


def orientation_of(image: Any) -> int:
    """Return the EXIF orientation of Pillow's image, from 1 to 8. Return 1 if its EXIF data cannot be read."""
    try:
        orientation = image.getexif().get(ORIENTATION, 1)
    except Exception:  # unreadable EXIF data do not matter for the pixels; viewers show these unchanged
        return 1
    return orientation if orientation in range(1, 9) else 1
