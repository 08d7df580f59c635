"""Published image files: each named by its row, and found through the index."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.write.merge.output_schema import publishable
from overnight.tasks.write.sinks import images as module
from overnight.tasks.write.sinks.images import ImagesSink, file_paths
from tests.contracts.sinks.publications import numbered, publish_parts, read_file

SINK = ImagesSink(path="-")


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), np.uint8)


def as_published(place: Path, images: Any, sink: ImagesSink = SINK) -> list[bytes | None]:
    """The file of each image, found through the index."""
    column = images if isinstance(images, pa.Array) else publishable(pa.table({"x": to_arrow(images)}))["x"]
    run = numbered(place, 1)
    index, _ = publish_parts(run, sink, {"x": list(range(len(column))), "image": column})
    table = read_file(run.sink / index)
    assert set(table.column_names) == {"x", "image_path", "row_id"}
    paths = [row["image_path"] for row in sorted(table.to_pylist(), key=lambda row: row["x"])]
    return [(run.target / path).read_bytes() if path else None for path in paths]


def decoded(content: bytes | None) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(content or b"")))


@pytest.mark.parametrize("shape", [(8, 10), (8, 10, 1), (8, 10, 3), (8, 10, 4)])
def test_pixels_come_back_from_png_as_they_were(shape: tuple[int, ...], tmp_path: Path) -> None:
    images = pixels(2, *shape)
    first, second = map(decoded, as_published(tmp_path, images))
    assert np.array_equal(np.stack([first, second]), images.reshape(2, *(shape if shape[-1] != 1 else shape[:2])))


def test_images_of_several_sizes_bytes_and_null(tmp_path: Path) -> None:
    sizes = [pixels(1, 4, 6, 3)[0], None, pixels(1, 5, 3, 3)[0]]
    first, second, third = as_published(tmp_path / "sizes", sizes)
    assert second is None
    assert np.array_equal(decoded(first), sizes[0])
    assert np.array_equal(decoded(third), sizes[2])
    file = io.BytesIO()
    Image.fromarray(sizes[0]).save(file, "png", compress_level=0)
    assert as_published(tmp_path / "png", pa.array([file.getvalue()])) == [file.getvalue()]
    [jpeg] = as_published(tmp_path / "jpeg", pa.array([file.getvalue()]), ImagesSink(path="-", format="jpeg"))
    assert (jpeg or b"").startswith(b"\xff\xd8\xff")
    assert decoded(jpeg).shape == (4, 6, 3)


def test_a_file_is_named_by_its_row() -> None:
    names = ["cat/01.png", "cat/02", "cat/02.png", "a.csv#3", "../up", "a//b", "x.PNG"]
    assert file_paths(names, ".png") == [
        "cat/01.png", "cat/02.png", "cat/02.png.png", "a.csv#3.png", "%2E%2E/up.png", "a/%/b.png", "x.PNG",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "fact"),
    [
        ({"image": pa.array([b"text"])}, "'image': a#0.png"),
        ({"image": pa.array([[0.5]], pa.list_(pa.float32()))}, "uint8, found 1 values of float"),
        ({"y": [1]}, "'image', found x, y, row_id"),
    ],
)
def test_what_is_no_image_is_refused_with_its_row_and_what_was_published_stays(
    columns: dict[str, Any], fact: str, tmp_path: Path
) -> None:
    run = numbered(tmp_path, 1)
    as_published(tmp_path, pixels(1, 4, 4, 3))
    before = run.target.names()
    with pytest.raises(ContractError, match=fact):
        publish_parts(numbered(tmp_path, 2), SINK, {"x": [1], **columns})
    assert run.target.names() == before
    assert [name for name in run.sink.names() if "publishing" in name] == []


@pytest.mark.parametrize(
    ("column", "named", "kept"),
    [("image", [], ["image"]), ("mask", ["audio"], ["audio", "mask"]), ("image", ["image"], ["image"])],
)
def test_the_column_is_kept_without_being_named_twice(column: str, named: list[str], kept: list[str]) -> None:
    assert ImagesSink(path="-", column=column, keep_columns=named).keep_columns == kept


@pytest.mark.parametrize("settings", [{"column": ["image"]}, {"keep_columns": [["audio"]]}, {"keep_columns": [{}]}])
def test_a_list_in_the_place_of_a_column_s_name_is_an_invalid_setting(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="valid string"):
        ImagesSink.model_validate({"kind": "images", "path": "-", **settings})


def test_formats_of_other_programs_and_too_many_pixels_are_never_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eps, bmp = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (4, 4)).save(eps, "EPS")
    Image.new("RGB", (4, 4)).save(bmp, "BMP")
    assert as_published(tmp_path / "few", pa.array([bmp.getvalue()]))[0]
    table = pa.table({"row_id": ["a"], "image": pa.array([eps.getvalue()])})
    with pytest.raises(RowError, match="cannot identify image"):
        SINK.take(table)
    monkeypatch.setattr(module, "MAX_IMAGE_PIXELS", 15)
    with pytest.raises(RowError, match="4 x 4 pixels, more than 15"):
        SINK.take(table.set_column(1, "image", pa.array([bmp.getvalue()])))
