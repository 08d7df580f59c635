"""The type and the message of a row's error in the quarantine, without secrets and control characters."""

from overnight.tasks.config import user_frames
from overnight.tasks.config.masking import masked, printable
from overnight.tasks.config.memory_bound import shortage
from overnight.tasks.errors import RowError

MESSAGE_LIMIT = 2000


def cause_of(error: Exception) -> BaseException:
    """Return the cause of a `RowError`; an error without a cause, or of another class, itself."""
    if isinstance(error, RowError) and error.__cause__:
        return error.__cause__
    return error


def error_type(error: Exception) -> str:
    """Return the name of an error's class, for the quarantine; for a `RowError` with a cause, that of the cause."""
    return type(cause_of(error)).__name__


def error_message(error: Exception) -> str:
    """Return an error's text, never empty and at most `MESSAGE_LIMIT` characters.

    If the user's own code raised it, its first line ends with the line of that code: `bad (steps.py:12, in clean)`.
    """
    text = str(error) or type(error).__name__
    if isinstance(error, UnicodeDecodeError):  # Python reports only a byte and its place
        content = f"{bytes(error.object[error.start : error.start + 16])!r} at byte {error.start}: {error.reason}"
        text = f"expected text in {error.encoding}, found {content}"
    elif isinstance(error, MemoryError):
        text = shortage(error)
    code_line = user_frames.place(error) or user_frames.place(cause_of(error))
    suffix = f" ({code_line})" if code_line and code_line not in text else ""
    first, end, more = printable(masked(text))[: MESSAGE_LIMIT - len(suffix)].partition("\n")
    # file names that are not UTF-8
    return f"{first}{suffix}{end}{more}".encode(errors="replace").decode()
