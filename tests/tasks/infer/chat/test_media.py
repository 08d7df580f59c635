"""Images and sounds as parts of a request: what is sent, and what is refused."""

import base64
import io
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.media import as_sent, image_url, input_audio, picture, signed_url

WAVE = b"RIFF\x00\x00\x00\x00WAVEfmt "


def pixels(height: int = 20, width: int = 40) -> np.ndarray:
    ramp = np.linspace(0, 255, width, dtype=np.uint8)
    return np.repeat(np.repeat(ramp[None, :, None], height, 0), 3, 2)


def file_of(kind: str, image: np.ndarray, **settings: Any) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image).save(file, kind, **settings)
    return file.getvalue()


def image_in(url: str, media_type: str) -> Image.Image:
    head, _, data = url.partition(",")
    assert head == f"data:{media_type};base64"
    return Image.open(io.BytesIO(base64.b64decode(data)))


def test_a_decoded_image_is_sent_as_jpeg_with_its_pixels() -> None:
    sent = image_in(image_url(pixels(), "data", None), "image/jpeg")
    assert sent.size == (40, 20)
    assert np.abs(np.asarray(sent).astype(int) - pixels()).mean() < 2


@pytest.mark.parametrize(("kind", "media_type"), [("JPEG", "jpeg"), ("PNG", "png"), ("WEBP", "webp"), ("GIF", "gif")])
def test_the_bytes_of_a_file_are_sent_as_they_are(kind: str, media_type: str) -> None:
    data = file_of(kind, pixels())
    for value in (data, {"bytes": data, "path": "a"}):
        url = image_url(value, "data", 40)
        assert url == f"data:image/{media_type};base64,{base64.b64encode(data).decode()}"
        assert image_url(url, "data", 40) == url


@pytest.mark.parametrize(("kind", "media_type"), [("JPEG", "jpeg"), ("PNG", "png"), ("BMP", "jpeg")])
def test_max_side_bounds_the_longer_side_before_the_image_is_encoded(kind: str, media_type: str) -> None:
    sent = image_in(image_url(file_of(kind, pixels()), "data", 10), f"image/{media_type}")
    assert sent.size == (10, 5)
    assert image_in(image_url(pixels(40, 20), "data", 10), "image/jpeg").size == (5, 10)


def test_a_scaled_photo_is_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    assert picture(file_of("JPEG", pixels(), exif=exif)).size == (20, 40)


def test_links_are_sent_as_they_are_and_objects_of_s3_need_image_as_url() -> None:
    for image_as in ("data", "url"):
        assert image_url("https://a/b.png", image_as, 10) == "https://a/b.png"
    with pytest.raises(RowError, match="Set image_as: url"):
        image_url("s3://bucket/b.png", "data", None)
    with pytest.raises(RowError, match="expected a URL of https"):
        image_url("/photos/b.png", "url", None)
    with pytest.raises(RowError, match="because image_as is url, found an array of uint8"):
        image_url(pixels(), "url", None)


def test_a_server_without_keys_reads_an_object_by_its_signed_url(s3: Any) -> None:
    data = file_of("PNG", pixels())
    s3.create_bucket(Bucket="photos")
    keys = ["a b/\u00e4.png", "a//b.png"]  # the second one has no path for obstore
    for key in keys:
        s3.put_object(Bucket="photos", Key=key, Body=data)
        url = image_url(f"s3://photos/{key}", "url", None)
        assert url == signed_url(f"s3://photos/{key}") or "Expires" in url
        assert "604800" in url or "Expires=" in url
        assert httpx.get(url).content == data


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (b"no image", "expected the bytes of an image"),
        (file_of("PNG", pixels())[:60], "expected an image whose pixels can be read"),
        (3, "expected a decoded image or the bytes of a file, found int 3"),
        (np.zeros((4, 4), np.uint8), "expected a uint8 array of H x W x 3"),
        ("data:image/png;base64,$", "expected base64 in a data URL"),
    ],
)
def test_other_values_are_refused(value: Any, words: str) -> None:
    with pytest.raises(RowError, match=words):
        image_url(value, "data", 10)


def test_sounds_are_wav_or_mp3() -> None:
    assert input_audio(WAVE) == {"data": base64.b64encode(WAVE).decode(), "format": "wav"}
    for head in (b"ID3\x04", b"\xff\xfb\x90"):
        assert input_audio({"bytes": head})["format"] == "mp3"
    for value in (b"fLaC", "https://a/b.wav", np.zeros((1, 8), np.float32)):
        with pytest.raises(RowError, match="expected the bytes of a WAV or MP3 file"):
            input_audio(value)


def test_other_parts_and_messages_stay_as_they_are() -> None:
    link = {"type": "image_url", "image_url": {"url": "https://a", "detail": "low"}}
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    messages = [call, {"role": "user", "content": [link, "text", {"type": "image", "image": "https://b"}]}]
    sent = as_sent(messages, "data", None)
    assert sent == [
        call,
        {"role": "user", "content": [link, "text", {"type": "image_url", "image_url": {"url": "https://b"}}]},
    ]
    with pytest.raises(RowError, match="image: expected a part with its image, found one without: type"):
        as_sent([{"role": "user", "content": [{"type": "image"}]}], "data", None)
