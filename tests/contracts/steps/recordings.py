"""Recordings that say something of their own time, orientation and shape, written by FFmpeg."""

import io
import struct
from fractions import Fraction
from functools import cache

import av
import numpy as np

MILLISECOND = Fraction(1, 1000)
SECONDS, RATE = 2, 25


def _grey(number: int) -> av.VideoFrame:
    return av.VideoFrame.from_ndarray(np.full((48, 64, 3), 4 * number, np.uint8), format="rgb24")


@cache
def video(
    container: str, codec: str, first: float = 0, sound_from: float | None = None, aspect: Fraction = Fraction(1)
) -> bytes:
    """Two seconds of grey frames, 4 brighter each, from the second `first` on, and a second of sound from its own."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as writer:
        stream = writer.add_stream(codec, rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.codec_context.sample_aspect_ratio = aspect
        is_fixed = container in ("avi", "mpeg")
        base = Fraction(1, RATE) if is_fixed else MILLISECOND
        stream.codec_context.time_base = stream.time_base = base
        sound = writer.add_stream("aac", rate=44_100, layout="mono") if sound_from is not None else None
        for number in range(SECONDS * RATE):
            frame = _grey(number)
            frame.pts, frame.time_base = round((Fraction(first) + Fraction(number, RATE)) / base), base
            writer.mux(stream.encode(frame))
        writer.mux(stream.encode(None))
        if sound is not None and sound_from is not None:
            for piece in _tone(sound, sound_from, 1):
                writer.mux(sound.encode(piece))
            writer.mux(sound.encode(None))
    return file.getvalue()


@cache
def sound(container: str, codec: str, first: float = 0, rate: int = 48_000) -> bytes:
    """Two seconds of a tone, from the second `first` on."""
    file = io.BytesIO()
    with av.open(file, "w", format=container) as writer:
        stream = writer.add_stream(codec, rate=rate, layout="mono")
        stream.codec_context.open(strict=False)
        for piece in _tone(stream, first, SECONDS):
            writer.mux(stream.encode(piece))
        writer.mux(stream.encode(None))
    return file.getvalue()


def _tone(stream: av.AudioStream, first: float, seconds: int) -> list[av.AudioFrame]:
    context, rate = stream.codec_context, stream.codec_context.sample_rate
    samples = 0.5 * np.sin(np.arange(rate * seconds) / rate * 2 * np.pi * 440)
    frame = av.AudioFrame.from_ndarray(samples.astype(np.float32)[None], "fltp", "mono")
    frame.sample_rate = rate
    resampler = av.AudioResampler(context.format.name, "mono", rate, frame_size=context.frame_size or 1024)
    pieces, start = [*resampler.resample(frame), *resampler.resample(None)], round(first * rate)
    for piece in pieces:
        piece.pts, piece.time_base = start, Fraction(1, rate)
        start += piece.samples
    return pieces


# The upper left part of each display matrix of ISO/IEC 14496-12, 8.3.2.3: x' = a * x + c * y, y' = b * x + d * y.
TURNS = {
    "upright": (1, 0, 0, 1), "a quarter": (0, 1, -1, 0), "a half": (-1, 0, 0, -1), "three quarters": (0, -1, 1, 0),
    "mirrored": (-1, 0, 0, 1), "upside down": (1, 0, 0, -1), "transposed": (0, 1, 1, 0), "transverse": (0, -1, -1, 0),
}  # fmt: skip


def turned(content: bytes, turn: tuple[int, int, int, int]) -> bytes:
    """The same MP4 file with another display matrix in its track's header."""
    a, b, c, d = (0x10000 * number for number in turn)
    one, end = 0x10000, 0x40000000
    old, new = (
        struct.pack(">9i", *matrix) for matrix in ((one, 0, 0, 0, one, 0, 0, 0, end), (a, b, 0, c, d, 0, 0, 0, end))
    )
    place = content.index(old, content.index(b"tkhd"))
    return content[:place] + new + content[place + len(new) :]


def as_shown(image: np.ndarray, turn: tuple[int, int, int, int]) -> np.ndarray:
    """The pixels of an image, each at the place where the matrix puts it."""
    a, b, c, d = turn
    rows, columns = np.indices(image.shape[:2])
    x, y = a * columns + c * rows, b * columns + d * rows
    x, y = x - x.min(), y - y.min()
    shown = np.zeros((y.max() + 1, x.max() + 1, 3), np.uint8)
    shown[y, x] = image
    return shown
