"""Images and sounds of rows as parts of OpenAI's messages: data URLs, URLs, and base64.

An image is uint8 H x W x 3, as `decode_image` makes it, or the bytes of a file, or a text with a
URL. A sound is the bytes of a WAV or MP3 file. A file of Hugging Face's data sets is a struct with
`bytes`.
"""

import base64
import io
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.messages import MEDIA, Message
from overnight.tasks.infer.huggingface.media import require_image
from overnight.tasks.rows.image_formats import MAX_IMAGE_PIXELS, readable_formats
from overnight.tasks.storage.filesystems import is_s3, open_filesystem

WEB = ("http://", "https://")
S3 = ("s3://", "s3a://")
SIGNED_FOR = timedelta(days=7)  # the longest that S3 allows
SENT_AS_THEY_ARE = {"JPEG": "image/jpeg", "PNG": "image/png", "WEBP": "image/webp", "GIF": "image/gif"}
JPEG_QUALITY = 90


def opened(value: Any) -> Image.Image:
    """Return a decoded image, or the first image of a file. Raise `RowError` for other values."""
    if isinstance(value, np.ndarray):
        return Image.fromarray(require_image(value))
    data = file_bytes(value)
    if data is None:
        raise RowError(f"image: expected a decoded image or the bytes of a file, found {_shown(value)}.")
    try:
        image = Image.open(io.BytesIO(data), formats=readable_formats())
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
        raise RowError(f"image: expected the bytes of an image, found others: {error}") from None
    if image.width * image.height > MAX_IMAGE_PIXELS:
        size = f"{image.width} x {image.height}"
        raise RowError(f"image: expected at most {MAX_IMAGE_PIXELS:,} pixels, found {size}.")
    return image


def file_bytes(value: Any) -> bytes | None:
    """Return the bytes of a file, a struct with `bytes`, or a data URL; None for other values."""
    if isinstance(value, Mapping):
        value = value.get("bytes")
    if isinstance(value, str) and value.startswith("data:") and ";base64," in value:
        try:
            value = base64.b64decode(value.partition(",")[2], validate=True)
        except ValueError as error:
            raise RowError(f"image: expected base64 in a data URL, found others: {error}.") from None
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else None


def picture(value: Any) -> Image.Image:
    """Return an image upright and in RGB. Raise `RowError` if its pixels cannot be read."""
    image = opened(value)
    if isinstance(value, np.ndarray):
        return image
    try:
        return ImageOps.exif_transpose(image).convert("RGB")
    except (OSError, SyntaxError, ValueError) as error:
        raise RowError(f"image: expected an image whose pixels can be read: {error}.") from None


def image_url(value: Any, image_as: str, max_side: int | None) -> str:
    """Return a data URL, or with `image_as` url the signed URL of an object in S3."""
    if isinstance(value, str) and not value.startswith("data:"):
        return _link(value, image_as)
    if image_as == "url":
        raise RowError(
            f"image: expected a text with a URL, because image_as is url, found {_shown(value)}. Name a column of "
            "URLs, such as uri, or set image_as: data."
        )
    image = opened(value)
    is_small = max_side is None or max(image.size) <= max_side
    if image.format in SENT_AS_THEY_ARE and is_small:
        return _data_url(SENT_AS_THEY_ARE[image.format], file_bytes(value) or b"")
    file_format = "PNG" if image.format == "PNG" else "JPEG"
    pixels = picture(value)
    if max_side:
        pixels.thumbnail((max_side, max_side), Image.Resampling.LANCZOS)
    file = io.BytesIO()
    pixels.save(file, file_format, quality=JPEG_QUALITY)
    return _data_url(SENT_AS_THEY_ARE[file_format], file.getvalue())


def _link(text: str, image_as: str) -> str:
    if text.startswith(WEB):
        return text
    if image_as == "url" and text.startswith(S3):
        return signed_url(text)
    advice = " Set image_as: url to sign it." if text.startswith(S3) else ""
    expected = "image: expected a URL of https://, or of an object in S3"
    raise RowError(f"{expected}, found {text[:80]!r}.{advice}")


def signed_url(uri: str) -> str:
    """Return a URL by which a server reads an object of S3 for `SIGNED_FOR`.

    With temporary keys, it ends with them.
    """
    filesystem, path = open_filesystem(uri)
    assert is_s3(filesystem)
    bucket, key = filesystem.place(path)
    return str(bucket.signed_url(key, SIGNED_FOR))


def input_audio(value: Any) -> dict[str, str]:
    """Return the base64 and the format of a sound. Raise `RowError` unless it is WAV or MP3."""
    data = file_bytes(value)
    if data is not None and data[:4] == b"RIFF" and data[8:12] == b"WAVE":
        file_format = "wav"
    elif data is not None and (data[:3] == b"ID3" or (data[:1] == b"\xff" and data[1:2] >= b"\xe0")):
        file_format = "mp3"
    else:
        raise RowError(
            f"audio: expected the bytes of a WAV or MP3 file, found {_shown(value)}. Name the column of the files, "
            "before decode_audio, or convert them."
        )
    return {"data": base64.b64encode(data).decode(), "format": file_format}


def as_sent(messages: Sequence[Message], image_as: str, max_side: int | None) -> list[Message]:
    """Return messages with images and sounds in OpenAI's form; other parts stay as they are."""
    sent = []
    for message in messages:
        content = message["content"]
        if isinstance(content, list):
            content = [_part(part, image_as, max_side) for part in content]
        sent.append({**message, "content": content})
    return sent


def _part(part: Any, image_as: str, max_side: int | None) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind not in MEDIA:
        return part
    if part.get(kind) is None:
        keys = ", ".join(part)
        raise RowError(f"{kind}: expected a part with its {kind}, found one without: {keys}.")
    if kind == "image":
        url = image_url(part["image"], image_as, max_side)
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "input_audio", "input_audio": input_audio(part["audio"])}


def _data_url(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} {value.shape}"
    return f"{type(value).__name__} {value!r:.60}"
