"""What is no image and no sound of one channel is refused with what it is."""

import numpy as np
import pytest

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.infer.huggingface.media import channel, require_image, require_rate


def test_an_image_and_one_channel_pass() -> None:
    image = np.zeros((2, 3, 3), np.uint8)
    assert require_image(image) is image
    for samples in (np.zeros((1, 5), np.float32), np.zeros(5, np.float32)):
        assert channel(samples, "audio").shape == (5,)
    require_rate([16000, 16000], 16000, "transcription")


@pytest.mark.parametrize(
    "value", [None, np.zeros((2, 3, 3)), np.zeros((2, 3), np.uint8), np.zeros((2, 3, 4), np.uint8)]
)
def test_another_value_than_an_rgb_image_is_refused(value: object) -> None:
    with pytest.raises(RowError, match="image: expected a uint8 array of H x W x 3, found"):
        require_image(value)


def test_several_channels_and_another_rate_are_refused() -> None:
    with pytest.raises(RowError, match="audio: expected sound of one channel, found shape 2 x 5"):
        channel(np.zeros((2, 5), np.float32), "audio")
    with pytest.raises(ContractError, match=r"expected 16000 samples per second, .* found 8000"):
        require_rate([16000, 8000], 16000, "transcription")
