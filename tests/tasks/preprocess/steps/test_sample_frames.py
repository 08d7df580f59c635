"""Videos to frames, by time."""

import re

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.rows import apply, blocks, tensors
from tests.tasks.blocks import source_block
from tests.tasks.preprocess.videos import broken, plain, turned, video


def files(contents: dict[str, bytes]) -> pa.Table:
    data = {"row_id": list(contents), "video": pa.array(list(contents.values()), pa.large_binary())}
    return source_block(0, 0, pa.table(data))


def made(block: pa.Table) -> list[dict]:
    table, _ = blocks.live_rows(block)
    images = tensors.to_numpy(table["image"])
    return [{**row, "image": one} for row, one in zip(table.drop_columns("image").to_pylist(), images, strict=True)]


def sampled(contents: dict[str, bytes], **settings) -> list[dict]:
    return made(apply.apply(files(contents), "preprocess", SampleFrames(**settings).build()))


@pytest.mark.parametrize(("container", "codec"), [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("webm", "libvpx")])
@pytest.mark.parametrize("every", [0.1, 0.5, 0.75, 100.0])
def test_frames_are_those_that_the_plain_library_finds_at_these_times(container: str, codec: str, every: float) -> None:
    content = video(32, container, codec)
    found = sampled({"a": content}, every_seconds=every)
    expected = plain(content, every)
    assert [(row["row_id"], row["frame"]) for row in found] == [(f"a#{number}", number) for number, *_ in expected]
    for row, (_, seconds, image) in zip(found, expected, strict=True):
        assert row["seconds"] == pytest.approx(seconds)
        np.testing.assert_array_equal(row["image"], image)


def test_frames_of_a_second_and_seconds_of_a_frame_say_the_same() -> None:
    by_rate, by_time = (sampled({"a": video(32)}, **settings) for settings in RATES)
    assert [row["frame"] for row in by_rate] == [row["frame"] for row in by_time] == [0, 5, 10, 15, 20, 25, 30]


RATES = ({"frames_per_second": 2}, {"every_seconds": 0.5})


def test_frames_stand_upright_and_fit_the_longest_side() -> None:
    (upright,) = sampled({"a": video(1)}, every_seconds=1)
    (row,) = sampled({"a": turned(video(1))}, every_seconds=1)
    assert row["image"].shape == (64, 48, 3)
    np.testing.assert_array_equal(row["image"], np.rot90(upright["image"], -1))
    (row,) = sampled({"a": video(1)}, every_seconds=1, longest_side=32)
    assert row["image"].shape == (24, 32, 3)


def test_frames_are_images_for_the_steps_that_follow() -> None:
    done = apply.apply(files({"a": video(20), "b": video(10)}), "preprocess", SampleFrames(every_seconds=1).build())
    done = apply.apply(done, "preprocess", ResizeImage(size=16).build())
    assert [(row["row_id"], row["image"].shape) for row in made(done)] == [
        *(("a#0", (16, 16, 3)), ("a#10", (16, 16, 3)), ("b#0", (16, 16, 3))),
    ]


def test_each_broken_file_is_quarantined_alone_with_its_reason() -> None:
    bad = broken()
    block = files({"first": video(30), **{name: content for name, (content, _) in bad.items()}, "last": video(30)})
    done = apply.apply(block, "preprocess", SampleFrames(every_seconds=0.5, max_frames=10).build())
    assert [row["row_id"].split("#")[0] for row in made(done)] == ["first"] * 6 + ["last"] * 6
    reasons = dict(zip(done["row_id"].to_pylist(), done["__error_message"].to_pylist(), strict=True))
    for name, (_, reason) in bad.items():
        assert re.search(reason, reasons[name] or ""), (name, reasons[name])
        assert reasons[name].startswith("sample_frames: expected a video file")


def test_one_interval_is_to_be_given() -> None:
    for settings in ({}, {"every_seconds": 1, "frames_per_second": 1}):
        with pytest.raises(ValidationError, match="either every_seconds or frames_per_second"):
            SampleFrames(**settings)


@pytest.mark.parametrize(("container", "codec"), [("mp4", "mpeg4"), ("matroska", "mpeg4"), ("webm", "libvpx")])
def test_a_file_whose_frames_are_too_large_is_quarantined_before_they_are_decoded(container: str, codec: str) -> None:
    content = video(4, container, codec)  # of 64 x 48 pixels
    assert len(sampled({"a": content}, every_seconds=0.1, max_image_pixels=64 * 48)) == 4
    few = SampleFrames(every_seconds=0.1, max_image_pixels=64 * 48 - 1)
    [reason] = apply.apply(files({"a": content}), "preprocess", few.build())["__error_message"].to_pylist()
    assert "at most max_image_pixels = 3071 pixels a frame, found 64 x 48" in reason
