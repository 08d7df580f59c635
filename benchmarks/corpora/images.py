"""Compare images with Pillow: the first frame, upright, as RGB, and the high byte of channels of 16 bits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import ours
from judging import Refused
from kind import Kind, ends_in

from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.preprocess.images.decode import allow_pixels
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.rows import tensors


def read(path: Path) -> list[Any]:
    """Return the image as an array."""
    rows = ours.read(Images, path, [DecodeImage()])
    return [row if isinstance(row, Refused) else tensors.to_numpy(row["image"])[0] for row in rows]


def by_pillow(path: Path) -> Iterator[np.ndarray]:
    """Yield the image, read as in Pillow's documentation."""
    from PIL import Image, ImageOps

    allow_pixels(1)  # registers the HEIF reader, as Overnight does
    with Image.open(path) as image:
        if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PPM"):
            image.load()
            high = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            high.getexif().update(image.getexif())
            yield np.asarray(ImageOps.exif_transpose(high).convert("RGB"))
            return
        yield np.asarray(ImageOps.exif_transpose(image).convert("RGB"))


def differs(mine: np.ndarray, other: np.ndarray) -> str:
    """Return the sizes, or the greatest difference of a pixel."""
    if mine.shape != other.shape:
        return f"expected an array of {other.shape}, found {mine.shape}"
    apart = np.abs(mine.astype(int) - other).max(initial=0)
    return f"pixels differ by {apart}" if apart else ""


KIND = Kind(
    "images",
    ("Pillow/Tests/images", "exif-orientation-examples"),
    ends_in(*Images.extensions),
    read,
    by_pillow,
    differs,
)
