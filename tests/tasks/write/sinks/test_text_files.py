"""Published JSON Lines and CSV: every value as it was, as far as the format can hold it."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.write.sinks.csv import CsvSink
from overnight.tasks.write.sinks.jsonl import JsonlSink
from tests.contracts.sinks.publications import numbered, publish_parts, read_files


@pytest.mark.parametrize("leaf", [JsonlSink, CsvSink])
@pytest.mark.parametrize(("compression", "ending"), [("none", ""), ("gzip", ".gz"), ("zstd", ".zst")])
def test_files_are_compressed_as_their_names_say(
    leaf: Any, compression: str, ending: str, tmp_path: Path, ray_session: None
) -> None:
    sink = leaf(path="-", compression=compression, target_file_size=1)
    run = numbered(tmp_path, 1)
    files = publish_parts(run, sink, {"x": [1, 2]}, {"x": [3]})
    assert [file.endswith(f".{sink.kind}{ending}") for file in files] == [True, True]
    assert sorted(read_files(run.sink, files)["x"].to_pylist()) == [1, 2, 3]
    if ending == ".gz":
        assert gzip.decompress((run.sink / files[0]).read_bytes()).count(b"\n") >= 2
