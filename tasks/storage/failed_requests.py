"""The requests to a store that failed and were tried again in this process, for the incidents of a run."""

from collections import deque

_problems: deque[str] = deque(maxlen=1000)  # several threads append


def note(problem: str) -> None:
    """Record that a request failed and is tried again. Equal problems have equal texts."""
    _problems.append(f"waited for the storage: {problem}")


def take_problems() -> list[str]:
    """Return the problems that this process noted since the last call, each once."""
    problems = dict[str, None]()
    while _problems:
        problems[_problems.popleft()] = None
    return list(problems)
