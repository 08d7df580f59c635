"""Scale one image to cover the target size, and cut out its middle, with Pillow or, faster, with OpenCV."""

import numpy as np

from overnight.tasks.errors import RowError

# A strip whose scaled size is this number of times its crop is cropped while it is scaled: 1 x 100,000 pixels would
# become 15 GB. Other images are cropped afterwards, because Pillow rounds between its two passes and orders them by
# size.
LARGEST_CROP = 64


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
        shape = " x ".join(str(length) for length in image.shape)
        raise RowError(f"expected an image of uint8 H x W x 3, found {image.dtype} {shape}")
    scaled_height, scaled_width = covering_size(image.shape[0], image.shape[1], height, width)
    top, left = (scaled_height - height) // 2, (scaled_width - width) // 2
    filter_ = Image.Resampling[resample.upper()]
    if scaled_height * scaled_width > LARGEST_CROP * height * width:
        across, down = image.shape[1] / scaled_width, image.shape[0] / scaled_height
        box = (left * across, top * down, (left + width) * across, (top + height) * down)
        return np.asarray(Image.fromarray(image).resize((width, height), filter_, box))
    scaled = Image.fromarray(image).resize((scaled_width, scaled_height), filter_)
    return np.asarray(scaled)[top : top + height, left : left + width]


def shrink_image(image: np.ndarray, height: int, width: int) -> np.ndarray:
    """Scale an image, uint8 H x W x 3, until it just covers height x width, and crop the middle of this size.

    It is faster than `resize_image`. An image that must grow gets the same pixels as there, by `bicubic`. Any other
    image gets other pixels. OpenCV averages areas if the image has at least twice the target's size, and otherwise
    interpolates between the nearest pixels. Areas would be closer to the exact pixels there too (1.1 instead of 2.2 of
    255 on average), but take a millisecond more.
    """
    import cv2

    scaled_height, scaled_width = covering_size(image.shape[0], image.shape[1], height, width)
    down, across = image.shape[0] / scaled_height, image.shape[1] / scaled_width
    if down < 1:
        return resize_image(np.ascontiguousarray(image), height, width, "bicubic")
    method = cv2.INTER_AREA if max(down, across) >= 2 else cv2.INTER_LINEAR
    if scaled_height * scaled_width > LARGEST_CROP * height * width:
        tall, wide = round(height * down), round(width * across)
        top, left = (image.shape[0] - tall) // 2, (image.shape[1] - wide) // 2
        cut = np.ascontiguousarray(image[top : top + tall, left : left + wide])
        return cv2.resize(cut, (width, height), interpolation=method)
    scaled = cv2.resize(np.ascontiguousarray(image), (scaled_width, scaled_height), interpolation=method)
    top, left = (scaled_height - height) // 2, (scaled_width - width) // 2
    return scaled[top : top + height, left : left + width]
