"""Which frames of a video are taken, and how large they may be."""

import pyarrow as pa
import pytest

from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from tests.contracts.steps.adapter import applied, assert_same, made, named, reasons
from tests.tasks.preprocess.videos import plain, video

KINDS = [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("webm", "libvpx")]


def block(content: bytes, **settings: object) -> pa.Table:
    return applied(SampleFrames(**settings), named(pa.table({"video": pa.array([content], pa.large_binary())})))


@pytest.mark.parametrize(("container", "codec"), KINDS)
@pytest.mark.parametrize("every", [0.1, 0.75, 100.0])
def test_frames_are_those_that_the_plain_library_finds_at_these_times(container: str, codec: str, every: float) -> None:
    content = video(32, container, codec)
    found = [{"frame": row["frame"], "image": row["image"]} for row in made(block(content, every_seconds=every))]
    assert_same(found, [{"frame": number, "image": image} for number, _, image in plain(content, every)])


def test_frames_of_a_second_and_seconds_of_a_frame_say_the_same() -> None:
    for settings in ({"frames_per_second": 2}, {"every_seconds": 0.5}):
        assert [row["frame"] for row in made(block(video(32), **settings))] == [0, 5, 10, 15, 20, 25, 30]


@pytest.mark.parametrize(("container", "codec"), KINDS)
def test_a_file_whose_frames_are_too_large_is_quarantined_before_they_are_decoded(container: str, codec: str) -> None:
    content = video(4, container, codec)  # of 64 x 48 pixels
    assert len(made(block(content, every_seconds=0.1, max_image_pixels=64 * 48))) == 4
    [reason] = reasons(block(content, every_seconds=0.1, max_image_pixels=64 * 48 - 1)).values()
    assert "at most max_image_pixels = 3071 pixels a frame, found 64 x 48" in reason
