"""Find the line of the user's own code in a traceback: it belongs to neither Overnight nor Python nor a package."""

import linecache
import sysconfig
import traceback
from functools import lru_cache
from pathlib import Path

PACKAGES = ("site-packages", "dist-packages")
PACKAGE = Path(__file__).parents[2]
OVERNIGHT = (PACKAGE, (PACKAGE / "flows").resolve(), (PACKAGE / "tasks").resolve())
PYTHON = (sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"))
FOLDERS = tuple(f"{folder}/" for folder in (*OVERNIGHT, *PYTHON))
LONGEST_SOURCE = 200  # characters


def place(error: BaseException) -> str:
    """Return `steps.py:12, in clean` for the innermost line of own code in the traceback; an empty text without one."""
    frame = _innermost(error)
    return f"{Path(frame.filename).name}:{frame.lineno}, in {frame.name}" if frame else ""


def quoted(error: BaseException) -> str:
    """Return a line for a message: a line end, `place`, and the source of that line. It is empty if there is none."""
    frame = _innermost(error)
    if not frame:
        return ""
    source = linecache.getline(frame.filename, frame.lineno or 0).strip()[:LONGEST_SOURCE]
    return f"\n  {place(error)}: {source}"


@lru_cache(maxsize=1024)
def is_own(filename: str) -> bool:
    """Return True if the file belongs to neither Overnight nor Python nor an installed package."""
    path = Path(filename)
    # Cython gives its own sources as file names
    if path.suffix != ".py" or any(part in PACKAGES for part in path.parts):
        return False
    return not str(path).startswith(FOLDERS) and not str(path.resolve()).startswith(FOLDERS)


def _innermost(error: BaseException) -> traceback.FrameSummary | None:
    frames = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__), lookup_lines=False)
    for frame in reversed(frames):
        if is_own(frame.filename):
            return frame
    return None
