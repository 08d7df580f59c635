"""The interface of a source, for a class of your own."""

from collections.abc import Iterator
from itertools import repeat
from typing import Literal

import pyarrow as pa
import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.ingest.reading.unit_rows import file_units
from overnight.tasks.ingest.source import Source
from overnight.tasks.storage.location import File


class Unreadable(Source):
    """A source that lists a file and has no method to read it."""

    kind: Literal["unreadable"] = "unreadable"

    def place(self, partition: str) -> str:
        return "here"

    def files(self, partition: str) -> Iterator[File]:
        yield File("a", "here/a", 1, "")

    def units(self, files: list[File]) -> pa.Table:
        return file_units(files, repeat(None))


def test_a_source_that_cannot_read_ends_the_run_and_names_the_missing_methods() -> None:
    source = Unreadable()
    units = source.units(list(source.files("all")))
    with pytest.raises(JobError, match="expected Unreadable to have tables or read, found none"):
        list(source.rows(units, None))
