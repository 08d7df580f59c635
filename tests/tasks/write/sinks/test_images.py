"""Published image files: each named by its row, found through the index, exchanged with it."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from overnight.tasks.errors import ContractError
from overnight.tasks.rows.tensors import to_arrow
from overnight.tasks.state.run import Run
from overnight.tasks.write.merge.output_schema import publishable
from overnight.tasks.write.sinks.images import ImagesSink, file_paths
from tests.contracts.sinks.publications import numbered, publish_parts

SINK = ImagesSink(path="-", grace_seconds=0, target_file_size=1)
pytestmark = pytest.mark.usefixtures("ray_session")


def staged(images: Any, first: int = 0) -> dict[str, Any]:
    """Columns as a stream stages them; x numbers the rows through."""
    column = publishable(pa.table({"image": to_arrow(images)}))["image"]
    return {"x": list(range(first, first + len(column))), "image": column}


def pixels(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).integers(0, 256, (count, *shape), np.uint8)


def published(run: Run, files: list[str]) -> dict[int, Any]:
    """x and the image of each row, found through the index."""
    found: dict[int, Any] = {}
    for file in files:
        if file.endswith(".parquet"):
            with (run.sink / file).open() as opened:
                index = pq.ParquetFile(opened).read()
            assert set(index.column_names) == {"x", "image_path", "row_id"}
            for row in index.to_pylist():
                place = (run.sink / file).parent
                content = (place / row["image_path"]).read_bytes() if row["image_path"] else None
                found[row["x"]] = np.array(Image.open(io.BytesIO(content))) if content else None
    return found


@pytest.mark.parametrize("shape", [(8, 10), (8, 10, 1), (8, 10, 3), (8, 10, 4)])
def test_pixels_come_back_from_png_as_they_were(shape: tuple[int, ...], tmp_path: Path) -> None:
    images, run = pixels(2, *shape), numbered(tmp_path, 1)
    found = published(run, publish_parts(run, SINK, staged(images)))
    assert np.array_equal(np.stack([found[0], found[1]]), images.reshape(2, *(shape if shape[-1] != 1 else shape[:2])))


def test_images_of_several_sizes_bytes_and_null(tmp_path: Path) -> None:
    run, file = numbered(tmp_path, 1), io.BytesIO()
    sizes = [pixels(1, 4, 6, 3)[0], None, pixels(1, 5, 3, 3)[0]]
    found = published(run, publish_parts(run, SINK, staged(sizes)))
    assert found[1] is None
    assert np.array_equal(found[0], sizes[0])
    assert np.array_equal(found[2], sizes[2])
    Image.fromarray(sizes[0]).save(file, "png", compress_level=0)
    again = numbered(tmp_path, 2)
    files = publish_parts(again, SINK, {"x": [0], "image": pa.array([file.getvalue()])})
    assert ((again.sink / files[1]) / "a#0.png").read_bytes() == file.getvalue()
    jpeg = numbered(tmp_path, 3)
    sink = ImagesSink(path="-", format="jpeg", grace_seconds=0)
    found = published(jpeg, publish_parts(jpeg, sink, {"x": [0], "image": pa.array([file.getvalue()])}))
    assert found[0].shape == (4, 6, 3)


def test_a_file_is_named_by_its_row(tmp_path: Path) -> None:
    names = ["cat/01.png", "cat/02", "cat/02.png", "a.csv#3", "../up", "a//b", "x.PNG"]
    assert file_paths(names, ".png") == [
        "cat/01.png", "cat/02.png", "cat/02.png.png", "a.csv#3.png", "%2E%2E/up.png", "a/%/b.png", "x.PNG",
    ]  # fmt: skip


def test_what_is_no_image_is_refused_with_its_row_and_what_was_published_stays(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    files = publish_parts(run, SINK, staged(pixels(1, 4, 4, 3)))
    for number, (columns, said) in enumerate(
        [
            ({"x": [1], "image": pa.array([b"text"])}, "'image': a#0.png is not a writable image"),
            (staged(np.ones((1, 4, 4, 3), np.float32)), "expected pixels of uint8, found 48 values of float"),
            ({"x": [1]}, "expected a column 'image', found x, row_id"),
        ]
    ):
        with pytest.raises(ContractError, match=said):
            publish_parts(numbered(tmp_path, number + 2), SINK, columns)
    assert sorted(published(run, files)) == [0]
    assert [name for name in run.sink.names() if "publishing" in name] == []


def test_the_column_is_kept_without_being_named_twice() -> None:
    assert ImagesSink(path="-").keep_columns == ["image"]
    assert ImagesSink(path="-", column="mask", keep_columns=["audio"]).keep_columns == ["audio", "mask"]
    assert ImagesSink(path="-", keep_columns=["image"]).keep_columns == ["image"]
