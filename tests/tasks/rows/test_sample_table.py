"""The preview of a run: what the models made beside the inputs."""

import base64
import io

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from overnight.tasks.rows.sample_table import markdown, predictions_beside_inputs
from overnight.tasks.rows.tensors import to_arrow
from tests.tasks.blocks import source_block


def sample() -> pa.Table:
    images = to_arrow(np.zeros((3, 4, 4, 3), np.uint8))
    names = {"row_id": ["a", "b", "c"], "uri": ["/in/a", "/in/b", "/in/c"], "label": ["x", "y", "z"]}
    return source_block(0, 0, pa.table(names).append_column("image", images))


def behind(rows: pa.Table) -> pa.Table:
    """Return the rows after a model that reads images, and passes them on no more."""
    made = pa.array([f"of {name}" for name in rows["row_id"].to_pylist()])
    return rows.drop_columns(["image", "label"]).append_column("predicted", made)


def test_predictions_come_before_the_inputs_and_the_uri_is_last() -> None:
    found = predictions_beside_inputs(sample(), behind(sample()))
    assert found.column_names == ["row_id", "predicted", "label", "image", "uri"]
    assert "data:image/png;base64," in markdown(found)
    assert predictions_beside_inputs(sample(), None).column_names == ["row_id", "label", "image", "uri"]


def test_a_row_that_the_model_did_not_pass_moves_no_other_row() -> None:
    found = predictions_beside_inputs(sample(), behind(sample()).slice(1))
    assert found.select(["row_id", "predicted", "label", "uri"]).to_pylist() == [
        {"row_id": "b", "predicted": "of b", "label": "y", "uri": "/in/b"},
        {"row_id": "c", "predicted": "of c", "label": "z", "uri": "/in/c"},
    ]


@pytest.mark.parametrize("shape", [(8, 8), (400, 100), (1, 900)])
def test_a_picture_is_large_enough_to_see_and_small_enough_for_a_table(shape: tuple[int, int]) -> None:
    images = to_arrow(np.zeros((1, *shape, 3), np.uint8))
    content = markdown(pa.table({"image": images})).rpartition("base64,")[2].partition(")")[0]
    assert max(Image.open(io.BytesIO(base64.b64decode(content))).size) == 192
