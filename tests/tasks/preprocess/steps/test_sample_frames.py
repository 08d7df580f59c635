"""Which frames of a video are taken, and how large they may be."""

import pytest

from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from tests.contracts.steps.adapter import assert_same, made_of_files, on_files, reasons
from tests.tasks.preprocess.videos import plain, video

KINDS = [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("webm", "libvpx")]


@pytest.mark.parametrize(("container", "codec"), KINDS)
@pytest.mark.parametrize("every", [0.1, 0.75, 100.0])
def test_frames_are_those_that_the_plain_library_finds_at_these_times(container: str, codec: str, every: float) -> None:
    content = video(32, container, codec)
    found = [
        {"frame": row["frame"], "image": row["image"]}
        for row in made_of_files(SampleFrames(every_seconds=every), content)
    ]
    assert_same(found, [{"frame": number, "image": image} for number, _, image in plain(content, every)])


def test_frames_of_a_second_and_seconds_of_a_frame_say_the_same() -> None:
    for settings in ({"frames_per_second": 2}, {"every_seconds": 0.5}):
        assert [row["frame"] for row in made_of_files(SampleFrames(**settings), video(32))] == list(range(0, 31, 5))


@pytest.mark.parametrize(("container", "codec"), KINDS)
def test_a_file_whose_frames_are_too_large_is_quarantined_before_they_are_decoded(container: str, codec: str) -> None:
    content = video(4, container, codec)  # of 64 x 48 pixels
    assert len(made_of_files(SampleFrames(every_seconds=0.1, max_image_pixels=64 * 48), content)) == 4
    [reason] = reasons(on_files(SampleFrames(every_seconds=0.1, max_image_pixels=64 * 48 - 1), content)).values()
    assert "at most max_image_pixels = 3071 pixels a frame, found 64 x 48" in reason
