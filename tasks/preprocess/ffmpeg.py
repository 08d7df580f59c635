"""Open audio and video files with PyAV, which includes FFmpeg.

Files must be whole. A file that refers FFmpeg to other files is refused.
"""

import contextlib
import io
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.truncated_media import what_is_missing

# the least part of the declared seconds; encoders round, and pad by some hundredths of a second
WHOLE = 0.9
# they declare the time of the end, which counts from 0
WITH_START = ("asf", "matroska,webm", "nut", "ogg")


def load_av(step: str) -> Any:
    """Import and return PyAV for a step of kind `step`. Raise `JobError` if it is not installed."""
    return require_extra("av", f"preprocess.kind: {step}", "preprocess")


@contextlib.contextmanager
def opened(
    av: Any, content: bytes, kind: str, expected: str, decoding: Mapping[str, str] = {}
) -> Iterator[tuple[Any, Any]]:
    """Open a file with PyAV (`av`), and yield its container and its first stream of `kind`, `audio` or `video`.

    Raise `RowError`, which begins with `expected`, for a file that FFmpeg cannot read whole, also in the body.
    """
    if content.startswith(b"RIFX"):  # FFmpeg 8.1 decodes it to noise
        raise RowError(f"{expected}, found a WAV file with the highest byte first (RIFX); convert it to RIFF")
    if missing := what_is_missing(content):
        raise RowError(f"{expected} that is whole, {missing}: it is cut off")
    # A playlist refers to other files: none of them may be opened on this machine.
    # FFmpeg decodes some frames to find their format
    options = {"protocol_whitelist": "none", **decoding}
    try:
        # titles in Latin-1
        with av.open(io.BytesIO(content), options=options, metadata_errors="replace") as container:
            # of an album, for example: players do not play it
            cover = av.stream.Disposition.attached_pic
            streams = [stream for stream in container.streams if not stream.disposition & cover]
            stream = next((stream for stream in streams if stream.type == kind), None)
            if stream is None:
                types = ", ".join(sorted({stream.type for stream in streams})) or "nothing"
                raise RowError(f"{expected}, found a file ({container.format.name}) that holds {types}")
            if stream.codec_context:  # None without a decoder
                codec_options = dict(decoding)
                # The last packet of ALAC has its own length, and FFmpeg 8.1 subtracts a CAF file's padding from it a
                # second time.
                if container.format.name == "caf" and stream.codec_context.name == "alac":
                    codec_options["flags2"] = "+skip_manual"
                stream.codec_context.options = codec_options
            yield container, stream
    except av.error.FFmpegError as error:
        start = f"{len(content)} bytes that begin with {content[:16]!r}"
        raise RowError(f"{expected}, found {start} and do not decode: {error.strerror or error}") from error


def require_complete_file(stream: Any, container: Any, content: bytes, seconds: float, expected: str) -> None:
    """Raise `RowError` if only `seconds` of a file were decoded, less than 90 % of its declared length.

    `opened` yields `stream` and `container`. `expected` begins the message. A file that declares no length passes.
    """
    declared_seconds = _declared_seconds(stream, container, content)
    if seconds < WHOLE * declared_seconds:
        part = f"{seconds:.2f} s of {declared_seconds:.2f} s"
        raise RowError(f"{expected} that is whole, found {part}: it is cut off or damaged")


def _declared_seconds(stream: Any, container: Any, content: bytes) -> float:
    name = container.format.name
    if name == "mp3" and not (b"Xing" in content[:8192] or b"Info" in content[:8192]):
        return 0.0  # FFmpeg only guesses the length
    if name == "aiff" and stream.codec_context.name == "gsm":
        return 0.0  # FFmpeg counts each sample as a packet of 160
    seconds = 0.0
    if stream.duration and name != "asf":  # there it is the length of the longest stream
        seconds = float(stream.duration * stream.time_base)
    elif container.duration and len(container.streams) == 1:
        seconds = container.duration / 1e6
    start = float((stream.start_time or 0) * stream.time_base)
    return seconds - start if name in WITH_START and 0 < start < seconds else seconds
