"""Images as the planes that models take."""

import numpy as np

from overnight.tasks.infer.huggingface.image_inputs import _planes


def test_planes_hold_the_pixels_of_each_channel_to_the_last_bit() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 7, 5, 3), dtype=np.uint8)
    images.flags.writeable = False  # as those that come out of a table
    planes = _planes(images)
    assert planes.dtype == np.float32
    np.testing.assert_array_equal(planes, images.transpose(0, 3, 1, 2))
    np.testing.assert_array_equal(_planes(images[:, ::-1, 1:4]), images[:, ::-1, 1:4].transpose(0, 3, 1, 2))
    assert _planes(images[:0]).shape == (0, 3, 7, 5)
