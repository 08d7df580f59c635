"""The requests to a store that failed and were tried again in this process, for the incidents of a run."""

from collections import deque

_problems: deque[str] = deque(maxlen=1000)  # several threads append


def note(problem: str) -> None:
    """Record that a request failed and is tried again. Equal ones have equal texts."""
    _problems.append(f"waited for the storage: {problem}")


def take_problems() -> list[str]:
    """Return the problems that this process noted since the last call, each once."""
    taken = []
    while _problems:
        taken.append(_problems.popleft())
    return list(dict.fromkeys(taken))
