"""Audio and video files opened by PyAV, which brings FFmpeg: whole ones only, and none that sends it to other files."""

import contextlib
import io
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.preprocess.truncated_media import what_is_missing

WHOLE = 0.9  # of the seconds that a file declares; encoders round, and pad by some hundredths of a second


def load_av(step: str) -> Any:
    """Return PyAV. Raise `JobError` where it is not installed."""
    return require_extra("av", f"preprocess.kind: {step}", "preprocess")


@contextlib.contextmanager
def opened(
    av: Any, content: bytes, kind: str, expected: str, decoding: Mapping[str, str] = {}
) -> Iterator[tuple[Any, Any]]:
    """A file's container and its first stream of `kind` (audio or video). decoding: FFmpeg's options for it.

    What FFmpeg cannot read in the body, too, is a `RowError`, which begins with what was `expected`.
    """
    if content.startswith(b"RIFX"):  # FFmpeg 8.1 gives noise
        raise RowError(f"{expected}, found a WAV file with the highest byte first (RIFX); convert it to RIFF")
    if missing := what_is_missing(content):
        raise RowError(f"{expected} that is whole, {missing}: it is cut off")
    try:
        # A playlist is no file of its own: nothing that it names may be opened on this machine.
        options = {"protocol_whitelist": "none", **decoding}  # FFmpeg decodes some frames to learn what they are
        with av.open(io.BytesIO(content), options=options, metadata_errors="replace") as container:  # titles in Latin-1
            stream = next(iter(getattr(container.streams, kind)), None)
            if stream is None:
                others = ", ".join(sorted({other.type for other in container.streams})) or "nothing"
                raise RowError(f"{expected}, found a file ({container.format.name}) that holds {others}")
            # Of ALAC the last packet says its own length, and FFmpeg 8.1 cuts a CAF file's padding off it once more.
            codec = stream.codec_context  # None where there is no decoder
            if codec:
                is_alac = container.format.name == "caf" and codec.name == "alac"
                codec.options = {**decoding, **({"flags2": "+skip_manual"} if is_alac else {})}
            yield container, stream
    except av.error.FFmpegError as error:
        start = f"{len(content)} bytes that begin with {content[:16]!r}"
        raise RowError(f"{expected}, found {start} and do not decode: {error.strerror or error}") from error


def require_complete_file(stream: Any, container: Any, content: bytes, seconds: float, expected: str) -> None:
    """Raises `RowError` where much less was decoded than the file says that it holds."""
    declared = _declared_seconds(stream, container, content)
    if seconds < WHOLE * declared:
        raise RowError(f"{expected} that is whole, found {seconds:.2f} s of {declared:.2f} s: it is cut off or damaged")


def _declared_seconds(stream: Any, container: Any, content: bytes) -> float:
    """0 where the file does not say: of MPEG audio without a header, FFmpeg only guesses."""
    if container.format.name == "mp3" and not (b"Xing" in content[:8192] or b"Info" in content[:8192]):
        return 0.0
    if container.format.name == "aiff" and stream.codec_context.name == "gsm":
        return 0.0  # FFmpeg takes each sample for a packet of 160
    if stream.duration:
        return float(stream.duration * stream.time_base)
    return container.duration / 1e6 if container.duration and len(container.streams) == 1 else 0.0
