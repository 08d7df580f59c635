"""Draw pages of PDF files and frames of videos in a process of its own, because a damaged file may end that process.

This module is its program too. It reads pickled `Drawing`s, and writes for each its number and a JPEG.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from overnight.tasks.preprocess.kinds import PreprocessStep

PAGE_PIXELS = 416  # of the longer side
SECONDS, MEMORY_BYTES = 20.0, 2**32


@dataclass(frozen=True)
class Drawing:
    """What to draw of a file: a page, counted from 1, or the frame of this number that the step selects."""

    content: bytes
    number: int
    step: PreprocessStep | None = None


def draw(drawings: Sequence[Drawing], seconds: float = SECONDS) -> list[bytes]:
    """Return a JPEG for each drawing; empty bytes for one that cannot be drawn in this time."""
    command = [sys.executable, "-P", "-m", __name__]
    try:
        request = pickle.dumps(drawings)
        drawn = subprocess.run(command, input=request, capture_output=True, timeout=seconds, check=False)
        output = drawn.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    pictures: dict[int, bytes] = {}
    stream = io.BytesIO(output)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):  # at the end, also of a process that ended early
        while True:
            pictures |= pickle.load(stream)
    return [pictures.get(number, b"") for number in range(len(drawings))]


def _drawn(drawing: Drawing) -> bytes:
    from PIL import Image

    if drawing.step:
        image = Image.fromarray(_frames(drawing.content, drawing.step)[drawing.number])
    else:
        import pypdfium2

        page = pypdfium2.PdfDocument(drawing.content)[drawing.number - 1]
        image = page.render(scale=PAGE_PIXELS / max(page.get_size())).to_pil()
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


@lru_cache(maxsize=1)
def _frames(content: bytes, step: PreprocessStep) -> Mapping[int, np.ndarray]:
    """Return the frames that a step selects in a video, as the models see them, by their numbers."""
    import pyarrow as pa

    from overnight.tasks.preprocess.in_process import build  # seconds, which pages do not need

    columns = build(step)(pa.table({"video": [content]})).columns
    return dict(zip(columns["frame"].to_pylist(), columns["image"], strict=True))


def _main() -> None:
    drawings = dict(enumerate(pickle.load(sys.stdin.buffer)))  # imports the modules of their steps
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for number in sorted(drawings, key=lambda number: id(drawings[number].content)):  # a video is decoded once
        picture = b""
        with contextlib.suppress(Exception):  # of a damaged file, or without the extra `pdf`
            picture = _drawn(drawings[number])
        pickle.dump({number: picture}, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
