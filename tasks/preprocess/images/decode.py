"""Decode one image file: bytes in, uint8 H x W x 3 RGB out.

EXIF orientation is applied, and the first frame of an animation is used. Colours become RGB as in Pillow's
`convert("RGB")`. Grey is repeated, palettes are looked up, and CMYK is converted without a profile. Alpha is dropped,
so that the colours under transparent pixels show. 16-bit channels keep their high byte, grey too, while Pillow itself
would clip. A truncated file is an error, unless all of its pixels are there.
"""

import contextlib
import io
import re
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import Field, PositiveInt

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.images.complete_lines import missing_lines
from overnight.tasks.rows.image_formats import FORMATS, readable_formats

HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1")  # ISO/IEC 23008-12, annex B
ORIENTATION = 0x0112

MaxImagePixels = Annotated[
    PositiveInt, Field(description="Images of more pixels are quarantined before they are decoded.")
]


def allow_pixels(max_image_pixels: int) -> None:
    """Let Pillow in this process decode images of up to this number of pixels, and refuse truncated images.

    Pillow decodes HEIF images too if pillow_heif is installed.
    """
    from PIL import Image, ImageFile

    with contextlib.suppress(ImportError):  # `decode_image` reports it when an image needs it
        from pillow_heif import register_heif_opener

        register_heif_opener()
    ImageFile.LOAD_TRUNCATED_IMAGES = False  # some libraries switch it on, and half an image turns grey
    if Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, max_image_pixels)


def decode_image(encoded: pa.Buffer | None, max_image_pixels: int) -> np.ndarray:
    """Decode one image file, and return it upright as uint8 H x W x 3, RGB.

    Raises:
        RowError: The bytes are None, empty, or not a whole image of a known format. Or the image has more than
            `max_image_pixels` pixels.
        JobError: The image is a HEIF image, and pillow_heif is not installed.
    """
    from PIL import Image, UnidentifiedImageError

    if encoded is None:
        raise RowError("expected an encoded image, found null")
    if not encoded.size:
        raise RowError("expected an encoded image, the file is empty (0 bytes)")
    try:
        with Image.open(io.BytesIO(encoded), formats=readable_formats()) as image:
            if image.width * image.height > max_image_pixels:
                raise RowError(
                    f"expected at most max_image_pixels = {max_image_pixels} pixels, "
                    f"found {image.width} x {image.height} = {image.width * image.height}"
                )
            tiles = list(image.tile)
            try:
                image.load()
            except Exception as error:
                raise RowError(
                    f"expected a whole {image.format} image of {image.width} x {image.height}, "
                    f"found {encoded.size} bytes that do not decode: {error}"
                ) from error
            if missing := missing_lines(image, tiles, encoded):
                raise RowError(f"expected a whole {image.format} image of {image.width} x {image.height}, {missing}")
            return np.asarray(_upright(_rgb(image)))
    except RowError:
        raise
    except UnidentifiedImageError as error:
        start = bytes(encoded[:16])
        if start[4:8] == b"ftyp" and start[8:12] in HEIF_BRANDS:
            require_extra("pillow_heif", "a HEIF image", "preprocess")
        found = f"found {encoded.size} bytes that begin with {start!r}"
        if begun := _begun(start):
            raise RowError(f"expected a whole {begun} image, {found} and have no header that can be read") from error
        raise RowError(f"expected an image ({', '.join(FORMATS)}), {found}") from error
    except Image.DecompressionBombError as error:  # of Pillow's limit, which is twice the one that is set
        size = re.search(r"\d+", str(error))
        found = f"{size.group()} pixels" if size else str(error)
        raise RowError(f"expected at most max_image_pixels = {max_image_pixels} pixels, found {found}") from error
    except Exception as error:
        raise RowError(f"expected an image, found {encoded.size} bytes that do not decode: {error}") from error


def _begun(start: bytes) -> str:
    """Return the format whose images begin like this, by Pillow's own test; empty without a match."""
    from PIL import Image

    for name in FORMATS:
        accepts = Image.OPEN[name][1] if name in Image.OPEN else None
        if accepts and accepts(start) is True:
            return name
    return ""


def _rgb(image: Any) -> Any:
    from PIL import Image

    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
        return Image.fromarray((np.asarray(image) >> 8).astype(np.uint8)).convert("RGB")
    if image.mode in ("I", "F"):
        raise RowError(
            f"expected 8 or 16 bits per channel, found {image.format} with 32 (mode {image.mode}) of unknown range"
        )
    image.info.pop("transparency", None)  # alpha is dropped; Pillow would warn about palettes with it
    return image.convert("RGB")


def _upright(image: Any) -> Any:
    """Return the image upright.

    Unlike `ImageOps.exif_transpose`, this keeps the EXIF data: rewriting fails if they are malformed.
    """
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(orientation_of(image))
    return image if turn is None else image.transpose(turn)


def orientation_of(image: Any) -> int:
    """Return the EXIF orientation of Pillow's image, from 1 to 8. Return 1 if its EXIF data cannot be read."""
    try:
        found = image.getexif().get(ORIENTATION, 1)
    except Exception:  # unreadable EXIF data do not matter for the pixels; viewers show these unchanged
        return 1
    return found if found in range(1, 9) else 1
