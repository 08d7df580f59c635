"""Check that an image file contains all lines that its header declares. Pillow leaves missing lines black.

Pillow reads a PNG file until its compressed data end, and a TIFF file strip by strip, for any height in the header.
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a PNG file, by its type of colour
IMAGE_LENGTH = 257  # TIFF's tag of the height, before the image is turned upright
BYTES_AT_ONCE = 2**20


def missing_lines(image: Any, tiles: Sequence[Any], encoded: pa.Buffer) -> str:
    """Return a text such as `found 3 of its 8 lines`, or an empty text if the image has all its lines.

    Args:
        image: Pillow's image, loaded.
        tiles: The parts of the file that Pillow decoded: `image.tile` before the image was loaded.
        encoded: The bytes of the image file.
    """
    promised = found = image.height
    if image.format == "TIFF" and tiles:
        promised, found = int(image.tag_v2[IMAGE_LENGTH]), max(extents[3] for _, extents, *_ in tiles)
    elif image.format == "PNG" and _is_last_line_empty(image):
        found = _lines_of_png(memoryview(encoded))
    return f"found {found} of its {promised} lines" if found < promised else ""


def _is_last_line_empty(image: Any) -> bool:
    line = image.crop((0, image.height - 1, image.width, image.height))
    return line.getbbox(alpha_only=False) is None


def _lines_of_png(content: memoryview) -> int:
    """Count the lines in the compressed data; for an interlaced file, whose lines come in any order, return the height.

    https://www.w3.org/TR/png-3/#7Scanline
    """
    width, height, depth, colour, _, _, is_interlaced = struct.unpack_from(">IIBBBBB", content, 16)
    if is_interlaced:
        return int(height)
    line_bytes = 1 + (width * CHANNELS[colour] * depth + 7) // 8
    inflating, count = zlib.decompressobj(), 0
    for data in _image_data(content):
        left: bytes | memoryview = data
        while left and count < height * line_bytes:
            try:
                count += len(inflating.decompress(left, BYTES_AT_ONCE))
            except zlib.error:
                return count // line_bytes
            left = inflating.unconsumed_tail
    return count // line_bytes


def _image_data(content: memoryview) -> Iterator[memoryview]:
    place = 8
    while place + 8 <= len(content):
        size, kind = struct.unpack_from(">I4s", content, place)
        if kind == b"IDAT":
            yield content[place + 8 : place + 8 + size]
        place += 12 + size
