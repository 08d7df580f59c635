"""Iceberg tables that somebody made otherwise."""

from dataclasses import replace
from pathlib import Path

import pytest

from overnight.tasks.errors import CheckFailed
from tests.contracts.sinks.publications import numbered, publish_parts, sink_of


def test_rows_of_somebody_else_are_foreign_and_another_layout_or_place_is_refused(tmp_path: Path) -> None:
    run, sink = numbered(tmp_path, 1), sink_of("iceberg", tmp_path)
    files = publish_parts(run, sink, {"x": [1]})
    assert sink.foreign(run, set(files)) == []
    assert sink.foreign(run, set()) == files
    with pytest.raises(CheckFailed, match="partitioned by nothing"):
        sink.foreign(replace(run, partition="all"), set())
    with pytest.raises(CheckFailed, match="expected the table in"):
        sink.foreign(numbered(tmp_path / "elsewhere", 1), set())
