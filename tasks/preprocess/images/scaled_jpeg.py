"""JPEG files scaled while they are decoded, for `decode: fast`: almost down to the size that is wanted.

libjpeg-turbo scales in its DCT: here by halves alone, never below what covers the target, for it has vector code for
those (five eighths take longer than the whole image). What is less than twice as large as the target is decoded whole,
to the very pixels of the exact way. Other formats, and a JPEG that is not as usual (CMYK, damaged, too large), are
decoded as `decode.py` decodes them, which also says what is wrong with them.
"""

import io
import math

import numpy as np
import pyarrow as pa

from overnight.tasks.preprocess.images.decode import ORIENTATION, decode_image
from overnight.tasks.preprocess.images.scaling import covering_size

JPEG_START = b"\xff\xd8\xff"
EXIF_START = b"Exif\x00\x00"
APP0, APP1, APP15, COMMENT = 0xE0, 0xE1, 0xEF, 0xFE


def decode_scaled(encoded: pa.Buffer | None, height: int, width: int, max_image_pixels: int) -> np.ndarray:
    """One image file as uint8 H x W x 3, RGB, that covers height x width if the file's image does.

    Raises `RowError` as `decode_image` does.
    """
    image = None if encoded is None else _scaled_jpeg(memoryview(encoded).cast("B"), height, width, max_image_pixels)
    return decode_image(encoded, max_image_pixels) if image is None else image


def _scaled_jpeg(encoded: memoryview, height: int, width: int, max_image_pixels: int) -> np.ndarray | None:
    """A JPEG upright, at least as large as what covers the target; None where the exact decoder is to look at it."""
    import simplejpeg

    if encoded[:3] != JPEG_START:
        return None
    try:
        found_height, found_width, colours, _ = simplejpeg.decode_jpeg_header(encoded)
        if colours not in ("YCbCr", "Gray", "RGB") or found_height * found_width > max_image_pixels:
            return None
        orientation = _orientation(encoded)
        target = (width, height) if orientation > 4 else (height, width)
        least_height, least_width = covering_size(found_height, found_width, *target)
        if found_height < least_height:  # it is to grow: every pixel counts, and there are few
            return None
        height, width = _halved(found_height, found_width, least_height, least_width)
        image = simplejpeg.decode_jpeg(encoded, "RGB", min_height=height, min_width=width)
    except ValueError:
        return None
    return _upright(image, orientation)


def _halved(height: int, width: int, least_height: int, least_width: int) -> tuple[int, int]:
    """The size halved while it covers the least, at most three times: libjpeg-turbo's smallest scale is an eighth."""
    for times in (8, 4, 2):
        smaller = math.ceil(height / times), math.ceil(width / times)
        if smaller[0] >= least_height and smaller[1] >= least_width:
            return smaller
    return height, width


def _orientation(encoded: memoryview) -> int:
    """EXIF's orientation, 1 to 8; 1 where there is none, or none that can be read."""
    from PIL import Image

    if not _has_exif(encoded):
        return 1
    try:
        with Image.open(io.BytesIO(encoded), formats=["JPEG"]) as image:
            found = int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # as in decode_image: unreadable EXIF data say nothing about the pixels
        return 1
    return found if 1 <= found <= 8 else 1


def _has_exif(encoded: memoryview) -> bool:
    """Whether a segment before the image's own is one of EXIF data (ITU-T T.81, B.1.1.4)."""
    at = 2
    while at + 10 <= len(encoded) and encoded[at] == 0xFF:
        marker = encoded[at + 1]
        if marker == 0xFF:  # a fill byte
            at += 1
        elif marker == APP1 and encoded[at + 4 : at + 10] == EXIF_START:
            return True
        elif APP0 <= marker <= APP15 or marker == COMMENT:
            at += 2 + int.from_bytes(encoded[at + 2 : at + 4], "big")
        else:
            return False
    return False


def _upright(image: np.ndarray, orientation: int) -> np.ndarray:
    if orientation > 4:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image
