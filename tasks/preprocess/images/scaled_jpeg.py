"""JPEG files scaled while they are decoded, for `decode: fast`: almost down to the target size.

OpenCV lets libjpeg-turbo scale in its DCT: only by halves, and never below the size that covers the target. An image of
less than twice the target is decoded whole, to exactly the pixels of `decode: exact`. Pillow reads the header.
`decode.py` decodes other formats and unusual JPEG files (CMYK, cut off, too large), and reports their errors.
"""

import io
import math

import numpy as np
import pyarrow as pa

from overnight.tasks.preprocess.images.decode import decode_image, orientation_of
from overnight.tasks.preprocess.images.scaling import covering_size

JPEG_START = b"\xff\xd8\xff"


def decode_scaled(encoded: pa.Buffer | None, height: int, width: int, max_image_pixels: int) -> np.ndarray:
    """Decode one image file to uint8 H x W x 3, RGB. A JPEG file is scaled down, but still covers height x width.

    An image in another format, or that does not cover height x width, keeps its size.

    Raises:
        RowError: The bytes are None, empty, or not a whole image of a known format. Or the image has more than
            `max_image_pixels` pixels.
        JobError: The image is a HEIF image, and pillow_heif is not installed.
    """
    image = None if encoded is None else _scaled_jpeg(memoryview(encoded).cast("B"), height, width, max_image_pixels)
    return decode_image(encoded, max_image_pixels) if image is None else image


def _scaled_jpeg(encoded: memoryview, height: int, width: int, max_image_pixels: int) -> np.ndarray | None:
    """Return a JPEG upright and scaled, still covering the target. Return None if the exact decoder must check it."""
    import cv2
    from PIL import Image

    if encoded[:3] != JPEG_START:
        return None
    try:
        with Image.open(io.BytesIO(encoded), formats=["JPEG"]) as header:
            found_width, found_height = header.size
            colours, orientation = header.mode, orientation_of(header)
    except Exception:
        return None
    if colours not in ("L", "RGB") or found_height * found_width > max_image_pixels:
        return None
    target = (width, height) if orientation > 4 else (height, width)
    least = covering_size(found_height, found_width, *target)
    if found_height < least[0]:  # it must grow: every pixel counts, and there are few
        return None
    scaled = {
        1: cv2.IMREAD_COLOR,
        2: cv2.IMREAD_REDUCED_COLOR_2,
        4: cv2.IMREAD_REDUCED_COLOR_4,
        8: cv2.IMREAD_REDUCED_COLOR_8,
    }[_times_smaller(found_height, found_width, *least)]
    try:
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), scaled | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    return None if image is None else _upright(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), orientation)


def _times_smaller(height: int, width: int, least_height: int, least_width: int) -> int:
    """Return by how much the size can be divided and still cover the least: 8 (libjpeg-turbo's maximum), 4, 2 or 1."""
    for times in (8, 4, 2):
        if math.ceil(height / times) >= least_height and math.ceil(width / times) >= least_width:
            return times
    return 1


def _upright(image: np.ndarray, orientation: int) -> np.ndarray:
    if orientation > 4:
        image = image.transpose(1, 0, 2)
    if orientation in (2, 3, 6, 7):
        image = image[:, ::-1]
    if orientation in (3, 4, 7, 8):
        image = image[::-1]
    return image
