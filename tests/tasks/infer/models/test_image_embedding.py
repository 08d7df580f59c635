"""Image embeddings: what the suite of models does not hold."""

import json
from pathlib import Path

import numpy as np
from transformers import CLIPModel

from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from tests.contracts.models.adapters.pictures import IMAGES, clip, saved


def test_a_clip_has_the_width_of_its_outer_settings(tmp_path: Path) -> None:
    saved(tmp_path, CLIPModel(clip()))
    written = tmp_path / "config.json"
    config = json.loads(written.read_text())
    model = ImageEmbedding(model=str(tmp_path))
    expected = model.load()({"image": IMAGES})["embedding"]
    del config["vision_config"]["projection_dim"]  # as in the checkpoints of OpenAI, whose width is 512 or 768
    written.write_text(json.dumps(config))
    assert expected.shape[1] == config["projection_dim"]
    np.testing.assert_array_equal(model.load()({"image": IMAGES})["embedding"], expected)
