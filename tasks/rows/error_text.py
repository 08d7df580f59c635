"""The type and the message of a row's error in the quarantine, without secrets and control characters."""

from overnight.tasks.config import user_frames
from overnight.tasks.config.masking import masked, printable
from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.errors import RowError

MESSAGE_LIMIT = 2000


def error_type(error: Exception) -> str:
    """Return the name of an error's class, for the quarantine; for a `RowError` with a cause, that of the cause."""
    cause = error.__cause__ if isinstance(error, RowError) and error.__cause__ else error
    return type(cause).__name__


def error_message(error: Exception) -> str:
    """Return an error's text, never empty and at most `MESSAGE_LIMIT` characters.

    If the user's own code raised it, its first line ends with the line of that code: `bad (steps.py:12, in clean)`.
    """
    text, place = _text(error), user_frames.place(error)
    if not place and isinstance(error, RowError) and error.__cause__:
        place = user_frames.place(error.__cause__)
    told = f" ({place})" if place and place not in text else ""
    first, end, more = printable(masked(text))[: MESSAGE_LIMIT - len(told)].partition("\n")
    return f"{first}{told}{end}{more}".encode(errors="replace").decode()  # file names that are not UTF-8


def _text(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError):  # Python reports only a byte and its place
        found = f"{bytes(error.object[error.start : error.start + 16])!r} at byte {error.start}: {error.reason}"
        return f"expected text in {error.encoding}, found {found}"
    if isinstance(error, MemoryError):
        return shortage(error)
    return str(error) or type(error).__name__
