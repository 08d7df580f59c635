"""Adapters of the steps on files and images, which Pillow, soundfile and PyAV read too."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import soundfile
from PIL import Image

from overnight.tasks.preprocess.steps.crop_boxes import CropBoxes
from overnight.tasks.preprocess.steps.decode_audio import DecodeAudio
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.pdf_text import PdfText
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.preprocess.steps.sample_frames import SampleFrames
from overnight.tasks.rows.tensors import to_arrow
from tests.contracts.steps.adapter import Row, StepAdapter
from tests.tasks.preprocess import pdfs, sounds, videos

BYTES = pa.large_binary()


def image(height: int, width: int, kind: str, seed: int = 0) -> bytes:
    """A photo-like image file."""
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(coarse).resize((width, height), Image.Resampling.BICUBIC).save(file, kind)
    return file.getvalue()


IMAGES = [image(20, 30, "PNG"), image(33, 16, "JPEG", 1), image(16, 16, "WEBP", 2)]


def pixels(content: bytes) -> np.ndarray:
    """The pixels as Pillow gives them."""
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB"))


def scaled(content: bytes) -> np.ndarray:
    """The image of 16 x 16 that Pillow scales and crops, as the processors of transformers do."""
    opened = Image.open(io.BytesIO(content)).convert("RGB")
    short = min(opened.size)
    width, height = (16 * length // short for length in opened.size)
    left, top = (width - 16) // 2, (height - 16) // 2
    whole = opened.resize((width, height), Image.Resampling.BICUBIC)
    return np.asarray(whole.crop((left, top, left + 16, top + 16)))


def frames(content: bytes) -> list[Row]:
    """The frames that PyAV finds by hand."""
    return [{"image": shown, "frame": number, "seconds": time} for number, time, shown in videos.plain(content, 0.5)]


def chunks(content: bytes) -> list[Row]:
    """Half seconds of a WAV file, as soundfile reads it."""
    samples, rate = soundfile.read(io.BytesIO(content), dtype="float32", always_2d=True)
    starts = range(0, len(samples), rate // 2)
    return [
        {
            "audio": samples[start : start + rate // 2].T.mean(axis=0, keepdims=True),
            "sampling_rate": rate,
            "start_seconds": start / rate,
            "end_seconds": min(start + rate // 2, len(samples)) / rate,
        }
        for start in starts
    ]


def files(column: str, contents: list[bytes]) -> pa.Table:
    return pa.table({column: pa.array(contents, BYTES)})


def damaged(column: str, cases: dict[str, tuple[bytes | None, str]]) -> dict[str, tuple[Row, str]]:
    return {name: ({column: content}, reason) for name, (content, reason) in cases.items()}


def broken_image() -> dict[str, tuple[bytes | None, str]]:
    """What is wrong with a file -> the file, and what its reason says."""
    png, jpeg = image(64, 64, "PNG"), image(64, 64, "JPEG")
    flipped, headless = bytearray(png), bytearray(png)
    flipped[len(png) // 2] ^= 0xFF
    headless[13] ^= 0xFF
    floats = io.BytesIO()
    Image.new("F", (4, 4)).save(floats, "TIFF")
    return {
        "null": (None, "found null"),
        "empty": (b"", r"the file is empty \(0 bytes\)"),
        "cut-jpeg": (jpeg[: len(jpeg) * 2 // 3], "expected a whole JPEG image of 64 x 64"),
        "cut-png": (png[: len(png) * 2 // 3], "expected a whole PNG image of 64 x 64"),
        "header-only": (jpeg[:100], "found 100 bytes"),
        "text": (b"<html>404 Not Found</html>", "begin with b'<html>404 Not Fo'"),
        "zeros": (bytes(1000), "expected an image"),
        "document": (b"%PDF-1.7\n%%EOF\n", "begin with b'%PDF-1.7"),
        "broken-header": (bytes(headless), "expected a whole PNG image, found"),
        "flipped-bits": (bytes(flipped), "expected a whole PNG"),
        "too-large": (image(70, 70, "PNG"), "found 70 x 70 = 4900"),
        "32-bit-floats": (floats.getvalue(), "expected 8 or 16 bits per channel"),
    }


VIDEOS = [videos.video(13), videos.video(4, "matroska"), videos.video(6, "webm", "libvpx")]
SOUNDS = [sounds.wav(sounds.tone(seconds)) for seconds in (1.2, 0.3, 0.5)]
PDFS = [pdfs.pdf([["one", "two"], [], ["three"]]), pdfs.pdf([["only page"]])]
PAGES = [
    [{"text": "one\r\ntwo", "page": 1, "pages": 3}, {"text": "three", "page": 3, "pages": 3}],
    [{"text": "only page", "page": 1, "pages": 1}],
]
BOXES = pa.list_(pa.list_(pa.float32()))
DECODED = [pixels(content) for content in IMAGES]
DETECTED = pa.table(
    {
        "image": to_arrow(DECODED),
        "boxes": pa.array([[[1.2, 2, 4, 5.5], [-3, -3, 100, 100]], [], [[0, 0, 2, 2]]], BOXES),
        "labels": [["cat", "dog"], None, ["bird"]],
    }
)
NO_BOXES: list[Any] = [
    [{"xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}], {"xmin": 0}, [0, 0, 1, 1], 1, "0 0 1 1", [["0", "0", "1", "1"]],
    [[[0, 0, 1, 1]]],
]  # fmt: skip


def cropped(row: int, box: tuple[int, int, int, int], kept: list[float], label: str) -> Row:
    cut = np.asarray(Image.fromarray(DECODED[row]).crop(box))
    return {"image": cut, "box": np.array(kept, np.float32).tolist(), "label": label}


ADAPTERS = {
    "decode_image": StepAdapter(
        DecodeImage(max_image_pixels=64 * 64), files("image", IMAGES),
        [[{"image": pixels(content)}] for content in IMAGES],
        broken=damaged("image", broken_image()), unusable=[("image", pa.array(["a"]))],
    ),
    "resize_image": StepAdapter(
        ResizeImage(size=16, max_image_pixels=64 * 64), files("image", IMAGES),
        [[{"image": scaled(content)}] for content in IMAGES],
        broken=damaged("image", broken_image()), unusable=[("image", pa.array(["a"]))],
    ),
    "crop_boxes": StepAdapter(
        CropBoxes(), DETECTED,
        [
            [cropped(0, (1, 2, 4, 6), [1.2, 2, 4, 5.5], "cat"), cropped(0, (0, 0, 30, 20), [-3, -3, 100, 100], "dog")],
            [],
            [cropped(2, (0, 0, 2, 2), [0, 0, 2, 2], "bird")],
        ],
        suffixes=[[0, 1], [], [0]],
        broken={
            name: ({**DETECTED.slice(0, 1).to_pylist()[0], **values}, reason)
            for name, values, reason in (
                ("outside", {"boxes": [[99, 0, 120, 2]] * 2}, "in the image of 30 x 20 pixels, found .99.0"),
                ("inside-out", {"boxes": [[3, 3, 1, 1]] * 2}, "in the image of 30 x 20"),
                ("three", {"boxes": [[1, 2, 3]] * 2}, "of four numbers, found .1.0, 2.0, 3.0"),
                ("nan", {"boxes": [[float("nan"), 0, 1, 1]] * 2}, "of four numbers"),
                ("null-number", {"boxes": [[0, None, 1, 1]] * 2}, "of four numbers, found .0.0, None"),
                ("labels", {"labels": ["cat"]}, "expected 2 entries in 'labels', one a box, found 1"),
                ("no-image", {"image": None}, "expected an image, found no value"),
            )
        },
        unusable=[
            *(("boxes", pa.array([value])) for value in NO_BOXES),
            *(("labels", pa.array([value])) for value in ("cat", {"a": 1}, 1)),
            ("image", pa.array([b"jpeg"])),
        ],
    ),
    "decode_audio": StepAdapter(
        DecodeAudio(chunk_seconds=0.5, max_seconds=5), files("audio", SOUNDS), [chunks(content) for content in SOUNDS],
        suffixes=[[0, 1, 2], [0], [0]], unusable=[("audio", pa.array(["a"]))],
        broken=damaged("audio", {"null": (None, "found null"), **sounds.broken()}),
    ),
    "sample_frames": StepAdapter(
        SampleFrames(every_seconds=0.5, max_frames=10), files("video", VIDEOS), [frames(c) for c in VIDEOS],
        suffixes=[[0, 5, 10], [0], [0, 5]],
        broken=damaged("video", {"null": (None, "found null"), **videos.broken()}), unusable=[("video", pa.array([1]))],
    ),
    "pdf_text": StepAdapter(
        PdfText(), files("pdf", PDFS), PAGES, suffixes=[[1, 3], [1]],
        broken=damaged("pdf", {"null": (None, "found null"), **pdfs.BROKEN}), unusable=[("pdf", pa.array(["a"]))],
    ),
}  # fmt: skip
