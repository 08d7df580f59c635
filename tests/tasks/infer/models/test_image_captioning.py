"""Captions: what the suite of models does not hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from tests.contracts.models.adapters.pictures import IMAGES, llava
from tests.tasks.infer.chat_models import chat_model


def captions(folder: Path, images: Any) -> list[str]:
    predict = ImageCaptioning(model=str(folder), user="the sea", system="the old cat", max_new_tokens=9).load()
    found: Any = predict({"image": images})
    return list(found.columns["generated_text"].to_pylist())


def test_the_caption_is_of_the_image(tmp_path: Path) -> None:
    llava(tmp_path)
    assert captions(tmp_path, np.zeros((5, 30, 30, 3), np.uint8)) != captions(tmp_path, IMAGES)


def test_a_model_without_eyes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="expected a processor of images and texts, found a"):
        captions(chat_model(tmp_path), IMAGES)
