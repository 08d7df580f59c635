"""A picture sheet: the query and the matches, each with its score and name, as one PNG file.

In: images as uint8 H x W x 3. An unreadable image is None, and becomes a grey tile. A query may be a text.
"""

import io
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

TILE, MARGIN, TEXT_HEIGHT = 192, 12, 34  # pixels
COLUMNS = 6
GREY, INK, PAPER = (225, 225, 225), (30, 30, 30), (255, 255, 255)


@dataclass(frozen=True)
class Tile:
    """A tile of the sheet: an image, a text, or None for an unreadable image, with two lines of text below it."""

    content: np.ndarray | str | None
    title: str
    caption: str = ""


def draw_sheet(query: Tile, matches: list[Tile]) -> bytes:
    """Return the bytes of a PNG: the query in the first column, and the matches beside it, best first, line by line.

    `matches` has at least one tile.
    """
    from PIL import Image, ImageDraw

    columns = min(len(matches), COLUMNS)
    lines = -(-len(matches) // columns)
    step = (TILE + MARGIN, TILE + TEXT_HEIGHT + MARGIN)
    size = (MARGIN + (columns + 1) * step[0] + MARGIN, MARGIN + lines * step[1])
    sheet = Image.new("RGB", size, PAPER)
    draw = ImageDraw.Draw(sheet)
    _draw(sheet, draw, query, MARGIN, MARGIN)
    draw.line([(MARGIN + step[0] - 1, MARGIN), (MARGIN + step[0] - 1, size[1] - MARGIN)], GREY, 2)
    for number, tile in enumerate(matches):
        across, down = number % columns, number // columns
        _draw(sheet, draw, tile, 2 * MARGIN + (across + 1) * step[0], MARGIN + down * step[1])
    file = io.BytesIO()
    sheet.save(file, "PNG", optimize=True)
    return file.getvalue()


def _draw(sheet: "Image.Image", draw: "ImageDraw.ImageDraw", tile: Tile, left: int, top: int) -> None:
    from PIL import Image, ImageFont

    large, small = ImageFont.load_default(15), ImageFont.load_default(12)
    if isinstance(tile.content, np.ndarray):
        image = Image.fromarray(tile.content)
        image.thumbnail((TILE, TILE))
        sheet.paste(image, (left + (TILE - image.width) // 2, top + (TILE - image.height) // 2))
    else:
        draw.rectangle([left, top, left + TILE, top + TILE], GREY)
        text = "image not readable" if tile.content is None else tile.content
        draw.multiline_text((left + 8, top + 8), textwrap.fill(text, 24, max_lines=9), INK, large)
    draw.text((left, top + TILE + 2), _fitting(draw, tile.title, large), INK, large)
    draw.text((left, top + TILE + 19), _fitting(draw, tile.caption, small), INK, small)


def _fitting(draw: "ImageDraw.ImageDraw", text: str, font: "ImageFont.FreeTypeFont | ImageFont.ImageFont") -> str:
    """Return the end of a text that fits below a tile, because names differ at their ends."""
    ending = text
    while len(ending) > 4 and draw.textlength(ending, font) > TILE:
        ending = "..." + ending[4:]
    return ending
