"""Published JSON Lines and CSV are compressed as their names say."""

from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.write.sinks.csv import CsvSink
from overnight.tasks.write.sinks.jsonl import JsonlSink
from tests.contracts.sinks.publications import numbered, publish_parts, read_files


@pytest.mark.parametrize("leaf", [JsonlSink, CsvSink])
@pytest.mark.parametrize(("compression", "ending"), [("none", ""), ("gzip", ".gz"), ("zstd", ".zst")])
def test_files_are_compressed_as_their_names_say(leaf: Any, compression: str, ending: str, tmp_path: Path) -> None:
    sink, run = leaf(path="-", compression=compression), numbered(tmp_path, 1)
    [file] = publish_parts(run, sink, {"x": [1, 2]})
    assert file.endswith(f".{sink.kind}{ending}")
    assert read_files(run.sink, [file])["x"].to_pylist() == [1, 2]
