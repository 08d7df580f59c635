"""What a file says of its own time, orientation and shape is applied, as players and viewers do."""

import io
from fractions import Fraction

import av
import numpy as np
import pytest
from PIL import Image

from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from tests.contracts.steps import recordings
from tests.contracts.steps.adapter import made_of_files, on_files, reasons
from tests.tasks.preprocess import sounds, videos

VIDEOS = {
    "mp4": "libx264", "mov": "libx264", "matroska": "libx264", "webm": "libvpx-vp9", "mpegts": "libx264",
    "flv": "libx264", "asf": "mpeg4", "nut": "mpeg4", "3gp": "mpeg4", "ivf": "libvpx",
}  # fmt: skip
SOUNDS = [
    ("matroska", "flac"), ("matroska", "aac"), ("matroska", "pcm_s16le"), ("webm", "libopus"), ("ogg", "libopus"),
    ("mp4", "aac"), ("mov", "pcm_s16le"), ("mpegts", "aac"), ("mp4", "alac"),
]  # fmt: skip


@pytest.mark.parametrize("container", VIDEOS)
def test_the_time_of_a_video_counts_from_its_first_frame(container: str) -> None:
    content = videos.video(20, container, VIDEOS[container], first=600)
    found = made_of_files(SampleFrames(every_seconds=1), content)
    assert [(row["frame"], round(row["seconds"], 2)) for row in found] == [(0, 0), (10, 1)]


@pytest.mark.parametrize("container", ["mp4", "matroska", "mpegts", "flv"])
@pytest.mark.parametrize(("first", "sound_from"), [(0, 1), (1, 0), (300, 300)])
def test_a_video_whose_sound_begins_at_another_time_is_whole(container: str, first: float, sound_from: float) -> None:
    content = videos.video(20, container, VIDEOS[container], first=first, sound_from=sound_from)
    assert [row["frame"] for row in made_of_files(SampleFrames(every_seconds=1), content)] == [0, 10]
    [heard] = made_of_files(DecodeAudio(column="video"), content)
    assert heard["end_seconds"] == pytest.approx(1, abs=0.15)


@pytest.mark.parametrize(("container", "codec"), SOUNDS)
def test_a_sound_that_begins_late_is_whole(container: str, codec: str) -> None:
    [row] = made_of_files(DecodeAudio(), sounds.compressed(codec, container, 2, 48_000, 600))
    assert row["end_seconds"] == pytest.approx(2, abs=0.15)
    assert row["start_seconds"] == 0


@pytest.mark.parametrize("container", ["mp4", "matroska", "asf", "nut", "flv"])
def test_a_late_video_that_is_cut_off_is_still_noticed(container: str) -> None:
    content = videos.video(20, container, VIDEOS[container], first=600)
    cut = [content[: int(len(content) * share)] for share in (0.5, 0.8)]
    assert len(reasons(on_files(SampleFrames(every_seconds=1), *cut))) == 2


@pytest.mark.parametrize("turn", recordings.TURNS)
def test_a_video_is_turned_and_mirrored_as_its_matrix_says(turn: str) -> None:
    matrix, plain = recordings.TURNS[turn], videos.video(1)
    [upright] = made_of_files(SampleFrames(every_seconds=1), plain)
    [found] = made_of_files(SampleFrames(every_seconds=1), recordings.turned(plain, matrix))
    np.testing.assert_array_equal(found["image"], recordings.as_shown(upright["image"], matrix))
    [small] = made_of_files(SampleFrames(every_seconds=1, longest_side=32), recordings.turned(plain, matrix))
    assert sorted(small["image"].shape) == [3, 24, 32]


@pytest.mark.parametrize("container", ["mp4", "matroska"])
@pytest.mark.parametrize(("aspect", "width"), [(Fraction(2), 128), (Fraction(8, 9), 57), (Fraction(1), 64)])
def test_pixels_that_are_not_square_are_shown_in_their_shape(container: str, aspect: Fraction, width: int) -> None:
    content = videos.video(20, container, "libx264", aspect=aspect)
    assert made_of_files(SampleFrames(every_seconds=9), content)[0]["image"].shape == (48, width, 3)


def with_cover(kind: str) -> bytes:
    """A video or a sound behind a cover of another size."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as writer:
        cover = writer.add_stream("png", rate=1)
        cover.width, cover.height, cover.pix_fmt, cover.disposition = 16, 16, "rgb24", 0x400
        content = videos.video(20) if kind == "video" else sounds.compressed("aac", "mp4")
        with av.open(io.BytesIO(content)) as source:
            copy = writer.add_stream_from_template(source.streams[0])
            writer.mux(cover.encode(av.VideoFrame.from_ndarray(np.zeros((16, 16, 3), np.uint8), format="rgb24")))
            for packet in source.demux(source.streams[0]):
                if packet.dts is not None:
                    packet.stream = copy
                    writer.mux(packet)
    return file.getvalue()


def test_the_cover_of_a_recording_is_no_frame_of_it() -> None:
    found = made_of_files(SampleFrames(every_seconds=1), with_cover("video"))
    assert [row["image"].shape for row in found] == [(48, 64, 3)] * 2
    assert reasons(on_files(SampleFrames(every_seconds=1), with_cover("audio")))["file0"].endswith("that holds audio")


RED, GREEN, BLUE, GREY = (250, 10, 10), (10, 250, 10), (10, 10, 250), (240, 240, 240)
CORNERS = np.array([[RED, GREEN], [BLUE, GREY]], np.uint8).repeat(16, axis=0).repeat(24, axis=1)
UPRIGHT = {
    1: (1, 0, 0, 1), 2: (-1, 0, 0, 1), 3: (-1, 0, 0, -1), 4: (1, 0, 0, -1), 5: (0, 1, 1, 0), 6: (0, 1, -1, 0),
    7: (0, -1, -1, 0), 8: (0, -1, 1, 0),
}  # fmt: skip
OTHERS = ["PNG", "WEBP", "TIFF", "AVIF", "HEIF", "MPO"]


@pytest.mark.parametrize(("kind", "orientation"), [("JPEG", turn) for turn in UPRIGHT] + [(kind, 6) for kind in OTHERS])
def test_an_image_stands_as_its_exif_data_say(kind: str, orientation: int) -> None:
    DecodeImage().build()  # registers HEIF
    exif, file = Image.Exif(), io.BytesIO()
    exif[0x0112] = orientation
    Image.fromarray(CORNERS).save(file, kind, exif=exif.tobytes() if kind == "HEIF" else exif)
    expected = recordings.as_shown(CORNERS, UPRIGHT[orientation])
    size = expected.shape[:2]
    for step in (DecodeImage(), ResizeImage(size=size), ResizeImage(size=size, decode="fast")):
        [row] = made_of_files(step, file.getvalue())
        assert np.abs(row["image"].astype(int) - expected).mean() < 15
