"""Image classification: what the suite of models does not hold."""

from pathlib import Path

import pytest
from transformers.models.efficientnet.image_processing_pil_efficientnet import EfficientNetImageProcessorPil

from overnight.tasks.infer.models.image_classification import ImageClassification
from tests.contracts.models.adapters.pictures import saved, vit


def test_a_processor_that_only_normalises_leaves_its_work_to_the_device(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for processor, is_beyond in ((None, False), (EfficientNetImageProcessorPil(), True)):
        saved(tmp_path, vit(), processor)
        ImageClassification(model=str(tmp_path)).load()
        assert ("does more than rescale and normalise" in caplog.text) == is_beyond
