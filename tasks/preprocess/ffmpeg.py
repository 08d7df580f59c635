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

WHOLE = 0.9  # the least part of the declared seconds; encoders round, and pad by some hundredths of a second
WITH_START = ("asf", "matroska,webm", "nut", "ogg")  # they declare the time of the end, which counts from 0


def load_av(step: str) -> Any:
    """Import and return PyAV for a step of kind `step`. Raise `JobError` if it is not installed."""
    return require_extra("av", f"preprocess.kind: {step}", "preprocess")


@contextlib.contextmanager
def opened(
    av: Any, content: bytes, kind: str, expected: str, decoding: Mapping[str, str] = {}
) -> Iterator[tuple[Any, Any]]:
    """Open the bytes of a file with PyAV, and yield its container and its first stream of `kind`, `audio` or `video`.

    `av` is the result of `load_av`, and `decoding` has options for FFmpeg's decoder. Raise `RowError` if the file is
    cut off, or if FFmpeg cannot read it, also in the body. The message begins with `expected`, such as "expected a
    video".
    """
    if content.startswith(b"RIFX"):  # FFmpeg 8.1 decodes it to noise
        raise RowError(f"{expected}, found a WAV file with the highest byte first (RIFX); convert it to RIFF")
    if missing := what_is_missing(content):
        raise RowError(f"{expected} that is whole, {missing}: it is cut off")
    try:
        # A playlist refers to other files: none of them may be opened on this machine.
        options = {"protocol_whitelist": "none", **decoding}  # FFmpeg decodes some frames to find their format
        with av.open(io.BytesIO(content), options=options, metadata_errors="replace") as container:  # titles in Latin-1
            streams = [stream for stream in container.streams if not _is_cover(av, stream)]
            stream = next((stream for stream in streams if stream.type == kind), None)
            if stream is None:
                others = ", ".join(sorted({other.type for other in streams})) or "nothing"
                raise RowError(f"{expected}, found a file ({container.format.name}) that holds {others}")
            # The last packet of ALAC has its own length, and FFmpeg 8.1 subtracts a CAF file's padding from it a second
            # time.
            codec = stream.codec_context  # None without a decoder
            if codec:
                is_alac = container.format.name == "caf" and codec.name == "alac"
                codec.options = {**decoding, **({"flags2": "+skip_manual"} if is_alac else {})}
            yield container, stream
    except av.error.FFmpegError as error:
        start = f"{len(content)} bytes that begin with {content[:16]!r}"
        raise RowError(f"{expected}, found {start} and do not decode: {error.strerror or error}") from error


def _is_cover(av: Any, stream: Any) -> bool:
    """Return True for a picture of the whole recording, such as the cover of an album: players do not play it."""
    return bool(stream.disposition & av.stream.Disposition.attached_pic)


def require_complete_file(stream: Any, container: Any, content: bytes, seconds: float, expected: str) -> None:
    """Raise `RowError` if less than 90 % of the declared length of a file was decoded.

    `opened` yields `stream` and `container`, and `content` has the bytes of the file. `seconds` is the decoded length,
    and `expected` begins the message. A file that declares no length passes.
    """
    declared = _declared_seconds(stream, container, content)
    if seconds < WHOLE * declared:
        raise RowError(f"{expected} that is whole, found {seconds:.2f} s of {declared:.2f} s: it is cut off or damaged")


def _declared_seconds(stream: Any, container: Any, content: bytes) -> float:
    """Return the declared length in seconds, or 0 if the file has none.

    FFmpeg only guesses the length of MPEG audio without a header.
    """
    if container.format.name == "mp3" and not (b"Xing" in content[:8192] or b"Info" in content[:8192]):
        return 0.0
    if container.format.name == "aiff" and stream.codec_context.name == "gsm":
        return 0.0  # FFmpeg counts each sample as a packet of 160
    seconds = 0.0
    if stream.duration and container.format.name != "asf":  # there it is the length of the longest stream
        seconds = float(stream.duration * stream.time_base)
    elif container.duration and len(container.streams) == 1:
        seconds = container.duration / 1e6
    start = float((stream.start_time or 0) * stream.time_base)
    begins_late = container.format.name in WITH_START and 0 < start < seconds
    return seconds - start if begins_late else seconds
