"""The interface of a source, for a class of your own."""

from collections.abc import Iterator
from typing import Literal

import pytest

from overnight.tasks.errors import JobError
from overnight.tasks.ingest.source import Source, kept_by_version
from overnight.tasks.storage.location import File


class Unreadable(Source):
    """A source that lists a file and has no method to read it."""

    kind: Literal["unreadable"] = "unreadable"

    def place(self, partition: str) -> str:
        return "here"

    def files(self, partition: str) -> Iterator[File]:
        yield File("a", "here/a", 1, "")


def test_a_source_that_cannot_read_ends_the_run_and_names_the_missing_methods() -> None:
    source = Unreadable()
    units = source.units(list(source.files("all")))
    with pytest.raises(JobError, match="expected Unreadable to have tables or read, found none"):
        list(source.rows(units, None))


def test_a_source_without_units_of_its_own_has_one_a_file_whose_rows_reading_counts() -> None:
    files = [File("a", "here/a", 5, "1"), File("b", "here/b", 7, "2")]
    units = Unreadable().units(files).to_pydict()
    assert (units["unit"], units["path"], units["size"], units["rows"]) == ([0, 1], ["a", "b"], [5, 7], [None, None])


def test_a_table_is_read_once_in_a_version_and_each_time_in_its_newest() -> None:
    readings: list[tuple[str, int | None]] = []

    def read(uri: str, version: int | None, anonymous: bool) -> str:
        readings.append((uri, version))
        return uri

    kept = kept_by_version(read)
    assert [kept("a", 1, False), kept("a", 1, False), kept("a", None, False), kept("a", None, False)] == ["a"] * 4
    assert readings == [("a", 1), ("a", None), ("a", None)]
