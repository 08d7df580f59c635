"""What is fuzzed: each reader, decoder and parser by its name, with its corpus and what must hold of its outcome.

A target is made in an empty folder. Its `run` takes a file and returns what became of it: `read`, if rows came out, or
`refused`, if only the project's own words did. Whatever `run` raises is a fault.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from overnight.tasks.ingest.source import Source
from overnight.tasks.rows import blocks
from tests.contracts.sources.reading import blocks_of
from tests.fuzz.mutations import Sample

READ, REFUSED = "read", "refused"
FOUND = Path(__file__).parent / "found"  # files that were faults once, a folder a target
OWN_WORDS = re.compile("expected|cannot|ends before|does not match|is reserved|found two|is (?:there|written) twice")


@dataclass(frozen=True)
class Target:
    """`keeps_length`: a file of another length is refused before it is opened."""

    samples: Sequence[Sample]
    run: Callable[[Sample], str]
    keeps_length: bool = False


class Found(NamedTuple):
    """The names of the good rows, and of the bad ones."""

    good: frozenset[str]
    bad: frozenset[str]


def rows_of(source: Source, units: pa.Table, schema: pa.Schema | None = None) -> Found:
    """Read units, and fail unless each of their rows is settled once, with values or in the project's own words.

    The values of the rows stay as Arrow has them: Python has no date for some that damage makes.
    """
    good, bad = list[str](), list[str]()
    for block in blocks_of(source, units, schema):
        for row in block.select(["__state", "row_id", "__error_message"]).to_pylist():
            if row["__state"] == blocks.LIVE:
                good.append(row["row_id"])
            elif row["__state"] != blocks.END:
                bad.append(row["row_id"])
                assert_own_words(row["__error_message"])
    return Found(frozenset(good), frozenset(bad))


def found_before(target: str) -> list[Sample]:
    """Return the kept files that were faults of this target once."""
    return [Sample(path.name.partition("__")[2], path.read_bytes()) for path in sorted((FOUND / target).glob("*"))]


def assert_own_words(reason: str) -> None:
    """Fail if a reason is a library's alone: it has to say what was expected."""
    assert OWN_WORDS.search(reason), f"a reason in no words of the project: {reason!r}"


def makers() -> dict[str, Callable[[Path], Target]]:
    """Return what makes each target, by its name."""
    from tests.fuzz import decoders, jobs, sources

    return {**sources.TARGETS, **decoders.TARGETS, **jobs.TARGETS}
