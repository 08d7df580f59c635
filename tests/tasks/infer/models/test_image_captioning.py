"""Captions: what the suite of models does not hold."""

from pathlib import Path

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from tests.tasks.infer.chat_models import chat_model


def test_a_model_without_eyes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JobError, match="expected a processor of images and texts"):
        ImageCaptioning(model=str(chat_model(tmp_path)), user="the sea").load()
