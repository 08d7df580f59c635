"""The picture sheet, read back as pixels."""

import io

import numpy as np
from PIL import Image

from overnight.tasks.search.contact_sheet import COLUMNS, GREY, MARGIN, TEXT_HEIGHT, TILE, Tile, draw_sheet


def colour(red: int, green: int, blue: int) -> np.ndarray:
    return np.full((50, 80, 3), (red, green, blue), np.uint8)


def test_the_query_stands_left_of_the_matches_which_fill_line_after_line() -> None:
    tiles = [Tile(np.full((300, 300, 3), 10 * place, np.uint8), f"{place}") for place in range(COLUMNS + 1)]
    sheet = Image.open(io.BytesIO(draw_sheet(Tile(colour(250, 0, 0), "query"), tiles)))
    step, middle = TILE + MARGIN, MARGIN + TILE // 2
    assert sheet.format == "PNG"
    assert sheet.getpixel((middle, middle)) == (250, 0, 0)
    for place in range(COLUMNS):
        assert sheet.getpixel((MARGIN + middle + (place + 1) * step, middle)) == (10 * place,) * 3
    below = (MARGIN + middle + step, middle + step + TEXT_HEIGHT)
    assert sheet.getpixel(below) == (10 * COLUMNS,) * 3


def test_a_text_and_an_image_that_is_gone_are_grey_tiles_with_words() -> None:
    sheet = Image.open(io.BytesIO(draw_sheet(Tile("a dog on a beach", "query"), [Tile(None, "0.5", "x" * 500)])))
    for left in (MARGIN, 2 * MARGIN + TILE + MARGIN):
        tile = np.asarray(sheet)[MARGIN : MARGIN + TILE, left : left + TILE]
        assert (tile == GREY).all(2).mean() > 0.8
        assert (tile < 100).all(2).any()  # ink
    assert (np.asarray(sheet)[:, -MARGIN // 2 :] == 255).all()  # no caption reaches the border
