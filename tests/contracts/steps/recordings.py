"""Videos that say how they are turned and mirrored, and where their pixels are shown."""

import struct

import numpy as np

# The upper left part of each display matrix of ISO/IEC 14496-12, 8.3.2.3: x' = a * x + c * y, y' = b * x + d * y.
TURNS = {
    "upright": (1, 0, 0, 1), "a quarter": (0, 1, -1, 0), "a half": (-1, 0, 0, -1), "three quarters": (0, -1, 1, 0),
    "mirrored": (-1, 0, 0, 1), "upside down": (1, 0, 0, -1), "transposed": (0, 1, 1, 0), "transverse": (0, -1, -1, 0),
}  # fmt: skip


def turned(content: bytes, turn: tuple[int, int, int, int]) -> bytes:
    """The same MP4 file with another display matrix in its track's header."""
    a, b, c, d = (0x10000 * number for number in turn)
    one, end = 0x10000, 0x40000000
    old, new = (
        struct.pack(">9i", *matrix) for matrix in ((one, 0, 0, 0, one, 0, 0, 0, end), (a, b, 0, c, d, 0, 0, 0, end))
    )
    place = content.index(old, content.index(b"tkhd"))
    return content[:place] + new + content[place + len(new) :]


def as_shown(image: np.ndarray, turn: tuple[int, int, int, int]) -> np.ndarray:
    """The pixels of an image, each at the place where the matrix puts it."""
    a, b, c, d = turn
    rows, columns = np.indices(image.shape[:2])
    x, y = a * columns + c * rows, b * columns + d * rows
    x, y = x - x.min(), y - y.min()
    shown = np.zeros((y.max() + 1, x.max() + 1, 3), np.uint8)
    shown[y, x] = image
    return shown
