"""Make small data sets for the pages in docs/how-to/.

photos/<shape>/<number>.png   24 pictures of a circle, a square or a triangle; the folder's name is the label
posts/<number>.parquet        image (a PNG file's bytes), caption
orders/<number>.parquet       order, country, price, count, ordered_at; two rows without a price
flowers/<number>.parquet      sepal_length, sepal_width, petal_length, petal_width; measures: the four as a vector
"""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle")
MEASURES = ("sepal_length", "sepal_width", "petal_length", "petal_width")


def photos(folder: Path) -> None:
    draw = np.random.default_rng(0)
    for number in range(24):
        shape = SHAPES[number % 3]
        (folder / shape).mkdir(exist_ok=True)
        _picture(shape, draw).save(folder / shape / f"{number:02}.png")


def posts(folder: Path) -> None:
    draw = np.random.default_rng(1)
    captions = ("what a lovely {}", "this {} is a mess", "a {} as usual", "never again a {}")
    images, texts = [], []
    for number in range(30):
        file = io.BytesIO()
        shape = SHAPES[number % 3]
        _picture(shape, draw).save(file, "PNG")
        images.append(file.getvalue())
        texts.append(captions[number % 4].format(shape))
    _tables(folder, {"image": images, "caption": texts}, 2)


def orders(folder: Path) -> None:
    draw = np.random.default_rng(2)
    prices = [round(float(price), 2) for price in draw.uniform(1, 200, 200)]
    days = np.datetime64("2026-11-01") + draw.integers(0, 19, 200)
    columns = {
        "order": list(range(1000, 1200)),
        "country": draw.choice(["DE", "FR", "IT", "US"], 200).tolist(),
        "price": [None if number in (17, 117) else price for number, price in enumerate(prices)],
        "count": draw.integers(1, 9, 200).tolist(),
        "ordered_at": [str(day) for day in days],
    }
    _tables(folder, columns, 4)


def flowers(folder: Path) -> None:
    draw = np.random.default_rng(3)
    measures = draw.normal([5.8, 3.1, 3.8, 1.2], [0.8, 0.4, 1.7, 0.7], (200, 4)).astype(np.float32)
    columns = {name: measures[:, place] for place, name in enumerate(MEASURES)}
    vectors = pa.FixedSizeListArray.from_arrays(measures.ravel(), 4)
    _tables(folder, {**columns, "measures": vectors}, 2)


def _picture(shape: str, draw: np.random.Generator) -> Image.Image:
    image = Image.new("RGB", (160, 120), tuple(draw.integers(160, 256, 3).tolist()))
    pencil, colour = ImageDraw.Draw(image), tuple(draw.integers(0, 120, 3).tolist())
    left, top, size = draw.integers([10, 5, 50], [60, 30, 90]).tolist()
    box = (left, top, left + size, top + size)
    if shape == "circle":
        pencil.ellipse(box, colour)
    elif shape == "square":
        pencil.rectangle(box, colour)
    else:
        pencil.polygon([(left, top + size), (left + size, top + size), (left + size // 2, top)], colour)
    return image


def _tables(folder: Path, columns: dict[str, object], files: int) -> None:
    table = pa.table(columns)
    rows = len(table) // files
    for number in range(files):
        pq.write_table(table.slice(number * rows, rows), folder / f"{number}.parquet")
