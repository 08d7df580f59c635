"""The interface of a provider's batch API, and its words as plain values."""

import enum
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol


class Phase(enum.Enum):
    """How far a batch is."""

    OPEN = "open"  # it is checked, waits, runs, or is being cancelled
    ENDED = "ended"  # completed, expired or cancelled: it may have answers
    FAILED = "failed"  # the provider refused the whole file, and charged nothing


@dataclass(frozen=True)
class Batch:
    """A batch as the provider describes it."""

    id: str
    state: str  # the provider's own word, in lower case
    phase: Phase
    file: str = ""  # of its requests
    label: str | None = ""  # that it was created with; None if the provider keeps none
    rows: int | None = None  # its requests, if the provider counts them
    created_at: float = 0.0  # by the provider's clock, in seconds since 1970; 0 if unknown
    completed: int | None = None  # requests with an answer, as the provider counts them
    results: tuple[str, ...] = ()  # the files of answers and of errors
    problem: str = ""  # of a failed batch
    is_full: bool = False  # it failed because too many tokens wait, so that it may succeed later


@dataclass(frozen=True)
class Result:
    """A line of a result: the body of an answer, or an error with its status, which is None if there was no response.

    `status` and `error` are None if the row was not tried.
    """

    key: str
    body: Any = None
    status: int | None = None
    error: Any = None


class Provider(Protocol):
    """A batch API. Each method sends one request, or one for each page of a list, and tries none again."""

    def line(self, key: str, body: str) -> bytes:
        """Return the line of a request. `body` is its JSON."""

    def upload(self, name: str, content: bytes) -> str:
        """Return the id of a new file. A provider without files returns the name."""

    def find_file(self, name: str) -> str | None:
        """Return the id of the newest uploaded file of this name."""

    def create(self, file: str, label: str, content: Callable[[], bytes]) -> Batch:
        """Create a batch of an uploaded file, or of its content. After a fault of the server, it may exist."""

    def batches(self, since: float) -> Iterator[Batch]:
        """Yield the batches that were created after a moment, in any order."""

    def look(self, id: str) -> Batch:
        """Return the batch as it is now. Raise `Gone` if the provider no longer has it."""

    def results(self, file: str) -> Iterator[Result | None]:
        """Yield the lines of a file of results; None for a line that cannot be read."""

    def cancel(self, id: str) -> None:
        """Cancel a batch. What it has answered by then is kept, and charged."""
