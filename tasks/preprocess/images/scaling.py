"""Scale one image to cover the target size, and cut out its middle: exactly with Pillow, or faster with OpenCV.

The fast way scales JPEG files while they are decoded: libjpeg-turbo scales in its DCT, only by halves, and never below
the size that covers the target. An image of less than twice the target is decoded whole, to exactly the pixels of
`decode: exact`. `decode.py` decodes other formats and unusual JPEG files (CMYK, cut off, too large), and reports their
errors.
"""

import io
import math

import numpy as np
import pyarrow as pa

from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.images.decode import decode_image, orientation_of, upright

# A strip whose scaled size is this number of times its crop is cropped while it is scaled: 1 x 100,000 pixels would
# become 15 GB. Other images are cropped afterwards, because Pillow rounds between its two passes and orders them by
# size.
LARGEST_CROP = 64
JPEG_START = b"\xff\xd8\xff"


def covering_size(height: int, width: int, target_height: int, target_width: int) -> tuple[int, int]:
    """Return (height, width) of the smallest image that covers the target and keeps the aspect ratio height : width."""
    if target_height * width >= target_width * height:
        return target_height, target_height * width // height
    return target_width * height // width, target_width


def resize_image(image: np.ndarray | None, height: int, width: int, resample: str) -> np.ndarray:
    """Scale an image, uint8 H x W x 3, until it just covers height x width, and crop the middle of this size.

    `resample` is the name of a filter of Pillow, such as `bicubic`. Raise `RowError` for None and any other array.
    """
    from PIL import Image

    if image is None:
        raise RowError("expected an image, found null")
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        shape = " x ".join(map(str, image.shape))
        raise RowError(f"expected an image of uint8 H x W x 3, found {image.dtype} {shape}")
    scaled_height, scaled_width = covering_size(image.shape[0], image.shape[1], height, width)
    y, x = (scaled_height - height) // 2, (scaled_width - width) // 2
    filter_ = Image.Resampling[resample.upper()]
    if scaled_height * scaled_width > LARGEST_CROP * height * width:
        across, down = image.shape[1] / scaled_width, image.shape[0] / scaled_height
        box = (x * across, y * down, (x + width) * across, (y + height) * down)
        return np.asarray(Image.fromarray(image).resize((width, height), filter_, box))
    pixels = np.asarray(Image.fromarray(image).resize((scaled_width, scaled_height), filter_))
    return pixels[y : y + height, x : x + width]


def shrink_image(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Scale an image like `resize_image`, but faster and with other pixels, unless the image must grow."""
    import cv2

    scaled_height, scaled_width = covering_size(image.shape[0], image.shape[1], height, width)
    down, across = image.shape[0] / scaled_height, image.shape[1] / scaled_width
    if down < 1:
        return resize_image(np.ascontiguousarray(image), height, width, "bicubic")
    # Below 2, areas are closer to the exact pixels (1.1 instead of 2.2 of 255 on average), but a millisecond slower.
    method = cv2.INTER_AREA if max(down, across) >= 2 else cv2.INTER_LINEAR
    if scaled_height * scaled_width > LARGEST_CROP * height * width:
        strip = np.ascontiguousarray(_middle(image, round(height * down), round(width * across)))
        return cv2.resize(strip, (width, height), interpolation=method)
    whole = np.ascontiguousarray(image)
    pixels = cv2.resize(whole, (scaled_width, scaled_height), interpolation=method)
    return _middle(pixels, height, width)


def _middle(image: np.ndarray, height: int, width: int) -> np.ndarray:
    y, x = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
    return image[y : y + height, x : x + width]


def decode_scaled(encoded: pa.Buffer | None, height: int, width: int, max_image_pixels: int) -> np.ndarray:
    """Decode a file like `decode_image`, but scale a JPEG file down while it still covers height x width.

    An image in another format, or that does not cover height x width, keeps its size.
    """
    if encoded is not None:
        image = _scaled_jpeg(memoryview(encoded).cast("B"), height, width, max_image_pixels)
        if image is not None:
            return image
    return decode_image(encoded, max_image_pixels)


def _scaled_jpeg(encoded: memoryview, height: int, width: int, max_image_pixels: int) -> np.ndarray | None:
    """Return a JPEG upright and scaled, still covering the target. Return None if the exact decoder must check it."""
    import cv2
    from PIL import Image

    if encoded[:3] != JPEG_START:
        return None
    try:
        with Image.open(io.BytesIO(encoded), formats=["JPEG"]) as header:
            size, colours = (header.height, header.width), header.mode
            orientation = orientation_of(header)
    except Exception:
        return None
    if colours not in ("L", "RGB") or math.prod(size) > max_image_pixels:
        return None
    target = (width, height) if orientation > 4 else (height, width)
    least = covering_size(*size, *target)
    if size[0] < least[0]:  # it must grow: every pixel counts, and there are few
        return None
    mode = cv2.IMREAD_COLOR
    for divisor in (2, 4, 8):  # of libjpeg-turbo
        if math.ceil(size[0] / divisor) >= least[0] and math.ceil(size[1] / divisor) >= least[1]:
            mode = getattr(cv2, f"IMREAD_REDUCED_COLOR_{divisor}")
    try:
        image = cv2.imdecode(np.frombuffer(encoded, np.uint8), mode | cv2.IMREAD_IGNORE_ORIENTATION)
    except cv2.error:
        return None
    return None if image is None else upright(cv2.cvtColor(image, cv2.COLOR_BGR2RGB), orientation)
