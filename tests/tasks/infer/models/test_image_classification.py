"""Image classification: what the suite of models does not hold."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers.models.efficientnet.image_processing_pil_efficientnet import EfficientNetImageProcessorPil

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.image_classification import ImageClassification
from tests.contracts.models.adapters.pictures import saved, vit


@pytest.mark.filterwarnings("error:The given NumPy array is not writable")
def test_read_only_images_of_the_object_store_will_do(tmp_path: Path) -> None:
    saved(tmp_path, vit())
    images = np.zeros((1, 32, 32, 3), np.uint8)
    images.flags.writeable = False
    assert len(ImageClassification(model=str(tmp_path)).load()({"image": images})["confidence"]) == 1


def test_a_processor_that_only_normalises_leaves_its_work_to_the_device(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for processor, is_beyond in ((None, False), (EfficientNetImageProcessorPil(), True)):
        saved(tmp_path, vit(), processor)
        ImageClassification(model=str(tmp_path)).load()
        assert ("does more than rescale and normalise" in caplog.text) == is_beyond


def test_a_folder_that_is_no_image_model_is_refused(tmp_path: Path) -> None:
    vit().save_pretrained(tmp_path)
    with pytest.raises(JobError, match=r"expected preprocessor_config\.json beside the model"):
        ImageClassification(model=str(tmp_path)).load()
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-architecture"}))
    with pytest.raises(JobError, match="no-such-architecture"):
        ImageClassification(model=str(tmp_path)).load()
