"""Draw pages of PDF files in a process of its own, because a damaged file may end the process that draws it.

This module is the program of that process too. It reads pickled `(file, page)` pairs, and writes a JPEG for each.
"""

import contextlib
import io
import pickle
import resource
import subprocess
import sys
from collections.abc import Sequence

PIXELS = 416  # of the longer side
SECONDS, MEMORY_BYTES = 20, 2**31


def draw_pages(pages: Sequence[tuple[bytes, int]]) -> list[bytes]:
    """Return a JPEG for each page of a file, counted from 1; empty bytes for one that cannot be drawn."""
    command = [sys.executable, "-P", "-m", __name__]
    try:
        drawn = subprocess.run(command, input=pickle.dumps(pages), capture_output=True, timeout=SECONDS, check=False)
        output = drawn.stdout
    except subprocess.TimeoutExpired as error:
        output = error.stdout or b""
    pictures: list[bytes] = []
    stream = io.BytesIO(output)
    with contextlib.suppress(EOFError, pickle.UnpicklingError):  # the process ended early
        while len(pictures) < len(pages):
            pictures.append(pickle.load(stream))
    return pictures + [b""] * (len(pages) - len(pictures))


def _draw(content: bytes, number: int) -> bytes:
    import pypdfium2

    page = pypdfium2.PdfDocument(content)[number - 1]
    image = page.render(scale=PIXELS / max(page.get_size())).to_pil()
    buffer = io.BytesIO()
    image.convert("RGB").save(buffer, "JPEG")
    return buffer.getvalue()


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    for content, number in pickle.load(sys.stdin.buffer):
        picture = b""
        with contextlib.suppress(Exception):  # of a damaged file, or without the extra `pdf`
            picture = _draw(content, number)
        pickle.dump(picture, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _main()
