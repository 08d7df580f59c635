"""What is fuzzed: each reader, decoder and parser by its name, with its corpus and what must hold of its outcome.

A target is made in an empty folder. Its `run` takes a file and returns what became of it: `read`, if rows came out, or
`refused`, if only the project's own words did. Whatever `run` raises is a fault.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.mutations import Sample

READ, REFUSED = "read", "refused"
FOUND = Path(__file__).parent / "found"  # files that were faults once, a folder a target
OWN_WORDS = re.compile("expected|cannot|ends before|is not the one|is reserved|found two|is there twice")


@dataclass(frozen=True)
class Target:
    """`keeps_length`: a file of another length is refused before it is opened."""

    samples: Sequence[Sample]
    run: Callable[[Sample], str]
    keeps_length: bool = False


def found_before(target: str) -> list[Sample]:
    """Return the kept files that were faults of this target once."""
    return [Sample(path.name.partition("__")[2], path.read_bytes()) for path in sorted((FOUND / target).glob("*"))]


def assert_own_words(reason: str) -> None:
    """Fail if a reason is a library's alone: it has to say what was expected."""
    assert OWN_WORDS.search(reason), f"a reason in no words of the project: {reason!r}"


def makers() -> dict[str, Callable[[Path], Target]]:
    """Return what makes each target, by its name."""
    from tests.fuzz import decoders, jobs, readers, tables

    return {**readers.TARGETS, **tables.TARGETS, **decoders.TARGETS, **jobs.TARGETS}
