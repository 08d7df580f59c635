"""Audio files made on the spot, whole and broken."""

import io
import struct
import wave
from fractions import Fraction
from functools import cache

import av
import numpy as np


def tone(seconds: float, rate: int = 16_000, hertz: float = 440.0) -> np.ndarray:
    """Float32 samples that 16 bits hold exactly."""
    samples = 0.5 * np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate)
    return (np.round(samples * 32_768) / 32_768).astype(np.float32)


def wav(samples: np.ndarray, rate: int = 16_000) -> bytes:
    """A WAV file of 16 bits; samples x channels, or one channel."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes((samples * 32_768).astype("<i2").tobytes())
    return file.getvalue()


def pieces(stream: av.AudioStream, seconds: float, first: float = 0) -> list[av.AudioFrame]:
    """A tone in frames that the codec of `stream` takes, from the second `first` on."""
    context, rate = stream.codec_context, stream.codec_context.sample_rate
    frame = av.AudioFrame.from_ndarray(tone(seconds, rate)[None], "fltp", "mono")
    frame.sample_rate = rate
    resampler = av.AudioResampler(context.format.name, "mono", rate, frame_size=context.frame_size or 1024)
    frames, start = [*resampler.resample(frame), *resampler.resample(None)], round(first * rate)
    for piece in frames:
        piece.pts, piece.time_base = start, Fraction(1, rate)
        start += piece.samples
    return frames


@cache
def compressed(
    codec: str, container: str, seconds: float = 2.0, rate: int = 16_000, first: float = 0, **options: str
) -> bytes:
    """A tone, as `codec` compresses it, from the second `first` on."""
    file = io.BytesIO()
    with av.open(file, "w", format=container, options=options) as writer:
        stream = writer.add_stream(codec, rate=rate, layout="mono")
        stream.codec_context.open(strict=False)
        for piece in pieces(stream, seconds, first):
            writer.mux(stream.encode(piece))
        writer.mux(stream.encode(None))
    return file.getvalue()


def aiff_of_gsm(packets: int) -> bytes:
    """An AIFF-C file of silence, 160 samples a packet, whose header counts samples, as libsndfile writes it."""
    rate = b"\x40\x0c\xfa\x00" + bytes(6)  # 16,000 as an extended float
    common = struct.pack(">hIh", 1, 160 * packets, 0) + rate + b"GSM " + bytes(2)
    chunks = {b"COMM": common, b"SSND": bytes(8) + (b"\xd0" + bytes(32)) * packets}
    body = b"AIFC" + b"".join(name + struct.pack(">I", len(inner)) + inner for name, inner in chunks.items())
    return b"FORM" + struct.pack(">I", len(body)) + body


def plain(content: bytes, rate: int = 16_000) -> np.ndarray:
    """What PyAV's own documentation does to decode and resample."""
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate)
    with av.open(io.BytesIO(content)) as container:
        frames = [out for frame in container.decode(audio=0) for out in resampler.resample(frame)]
    return np.concatenate([frame.to_ndarray() for frame in [*frames, *resampler.resample(None)]], axis=1)


def put(content: bytes, place: int, instead: bytes) -> bytes:
    """The file with other bytes from `place` on."""
    return content[:place] + instead + content[place + len(instead) :]


WHOLE = wav(tone(1.0))
PLAYLIST = b"ffconcat version 1.0\nfile '%s'\n"  # FFmpeg would open that file


def broken() -> dict[str, tuple[bytes, str]]:
    """What is wrong with a file -> the file, and what its reason says."""
    mp3, flac, mp4 = compressed("libmp3lame", "mp3"), compressed("flac", "flac"), compressed("aac", "mp4")
    floats = (
        b"RIFF" + struct.pack("<I", 36 + 400) + b"WAVEfmt " + struct.pack("<IHHIIHH", 16, 3, 1, 16000, 64000, 4, 32)
    )
    floats += b"data" + struct.pack("<I", 400) + np.full(100, np.nan, "<f4").tobytes()
    return {
        "empty": (b"", r"the file is empty \(0 bytes\)"),
        "text": (b"Dear listener\n" * 20, "280 bytes that begin with b'Dear listener"),
        "zeros": (bytes(1000), "1000 bytes that begin with"),
        "header-only": (wav(np.zeros(0, np.float32)), "without a single sample"),
        "too-short": (wav(np.full(5, 0.5, np.float32), 44_100), "found one of 5 samples, too few to make some"),
        "cut-wav": (WHOLE[: len(WHOLE) // 2], r"found 16022 bytes of 32044: it is cut off"),
        "cut-mp4": (mp4[: len(mp4) // 2], r"found \d+ bytes of \d+: it is cut off"),
        "cut-flac": (flac[: len(flac) // 2], "do not decode: Invalid data"),
        "cut-mp3": (mp3[: len(mp3) // 2], r"whole, found \d+ bytes of \d+: it is cut off"),
        "overwritten": (flac[:9000] + b"\x55" * 2000 + flac[11000:], "whole, found 1.* s of 2"),
        "highest-byte-first": (b"RIFX" + WHOLE[4:], "found a WAV file with the highest byte first .RIFX.; convert it"),
        "no-rate": (put(WHOLE, 24, bytes(4)), "do not decode"),
        "rate": (put(WHOLE, 24, b"\xff\xff\xff\x7f"), "at most 3,000,000 samples .* found one of 2,147,483,647"),
        "unknown-codec": (put(WHOLE, 20, b"\x77\x77"), "do not decode: Decoder not found"),
        "other-codec": (put(WHOLE, 20, b"\x55\0"), "do not decode: Invalid data"),
        "size": (put(WHOLE, 4, struct.pack("<I", 10**9)), "found 32044 bytes of 1000000008: it is cut off"),
        "channels": (put(WHOLE, 22, struct.pack("<H", 60_000)), "do not decode: Invalid argument"),
        "no-channels": (put(WHOLE, 22, bytes(2)), "do not decode: Invalid argument"),
        "bits": (put(WHOLE, 34, struct.pack("<H", 65)), "do not decode: Decoder not found"),
        "not-numbers": (floats, "samples that are not finite numbers"),
        "too-long": (wav(np.zeros(8 * 16_000, np.float32)), "at most max_seconds = 5, found a longer one"),
    }
