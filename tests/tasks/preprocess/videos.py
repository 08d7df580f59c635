"""Videos made on the spot, whole and broken."""

import io
import math
import struct
from fractions import Fraction
from functools import cache

import av
import numpy as np

from tests.tasks.preprocess import sounds

RATE = 10


def picture(number: int, height: int = 48, width: int = 64) -> np.ndarray:
    """A frame that tells its number by its brightness; its upper left quarter is white."""
    image = np.full((height, width, 3), 10 + number, np.uint8)
    image[: height // 2, : width // 2] = 255
    return image


class Pipe(io.BytesIO):
    """A place to write to without a way back, as live recordings have it."""

    def seekable(self) -> bool:
        return False

    seek = None  # type: ignore[assignment]


@cache
def video(
    frames: int,
    container: str = "mp4",
    codec: str = "mpeg4",
    height: int = 48,
    width: int = 64,
    *,
    first: float = 0,
    sound_from: float | None = None,
    aspect: Fraction = Fraction(1),
    is_live: bool = False,
    **options: str,
) -> bytes:
    """So many frames, ten a second, from the second `first` on; a second of sound from its own."""
    file = Pipe() if is_live else io.BytesIO()
    with av.open(file, "w", format=container, options=options) as writer:
        stream = writer.add_stream(codec, rate=RATE)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.sample_aspect_ratio = aspect
        sound = writer.add_stream("aac", rate=44_100, layout="mono") if sound_from is not None else None
        for number in range(frames):
            frame = av.VideoFrame.from_ndarray(picture(number, height, width), format="rgb24")
            frame.pts, frame.time_base = round(first * RATE) + number, Fraction(1, RATE)
            writer.mux(stream.encode(frame))
        writer.mux(stream.encode(None))
        for piece in sounds.pieces(sound, 1, sound_from or 0) if sound else ():
            writer.mux(sound.encode(piece))
        writer.mux(sound.encode(None) if sound else [])
    return file.getvalue()


def plain(content: bytes, every: float) -> list[tuple[int, float, np.ndarray]]:
    """What PyAV's documentation does: every frame, of which the first of each interval is kept."""
    kept: dict[int, tuple[int, float, np.ndarray]] = {}
    with av.open(io.BytesIO(content)) as container:
        for number, frame in enumerate(container.decode(video=0)):
            kept.setdefault(
                math.floor(frame.time / every + 1e-6), (number, frame.time, frame.to_ndarray(format="rgb24"))
            )
    return list(kept.values())


def in_box(content: bytes, name: bytes, offset: int, instead: bytes) -> bytes:
    """The MP4 file with other bytes so far behind the name of a box."""
    return sounds.put(content, content.index(name) + offset, instead)


def broken() -> dict[str, tuple[bytes, str]]:
    """What is wrong with a file -> the file, and what its reason says."""
    mp4, mkv, avi = video(30), video(30, "matroska"), video(30, "avi")
    png = io.BytesIO()
    with av.open(png, "w", format="image2pipe") as writer:
        stream = writer.add_stream("png", rate=1)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "rgb24"
        writer.mux(stream.encode(av.VideoFrame.from_ndarray(picture(0), format="rgb24")))
        writer.mux(stream.encode(None))
    place, most = mp4.index(b"mdat"), struct.pack(">I", 2**31 - 1)
    return {
        "empty": (b"", r"the file is empty \(0 bytes\)"),
        "text": (b"Dear viewer\n" * 20, "240 bytes that begin with b'Dear viewer"),
        "zeros": (bytes(1000), "1000 bytes that begin with"),
        "header-only": (mp4[:36], "do not decode"),
        "cut-mp4": (mp4[: len(mp4) // 2], "do not decode|that is whole"),
        "cut-mkv": (mkv[: len(mkv) // 2], r"that is whole, found|do not decode"),
        "cut-avi": (avi[: len(avi) // 2], r"found \d+ bytes of \d+: it is cut off"),
        "overwritten": (mp4[: place + 4] + b"\x55" * 4000 + mp4[place + 4004 :], "do not decode|that is whole"),
        "count-of-frames": (in_box(mp4, b"stsz", 12, most), "do not decode: Invalid data"),
        "size-of-a-frame": (in_box(mp4, b"stsz", 16, struct.pack(">I", 2**30)), "found one without a single frame"),
        "place-of-frames": (in_box(mp4, b"stco", 12, most), "found one without a single frame"),
        "unknown-codec": (mkv.replace(b"V_MPEG4", b"V_UNKNO"), "do not decode|found a file"),
        "sound": (sounds.compressed("flac", "flac"), r"found a file \(flac\) that holds audio"),
        "picture": (png.getvalue(), r"found a picture \(png\)"),
        "too-long": (video(200), r"at most max_frames = 10 frames, one every 0\.5 s"),
    }
