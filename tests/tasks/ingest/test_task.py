"""The door of ingest: what it lists once, and tells of it."""

from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.task import ingest
from tests.tasks.runs import make_run


def test_the_inputs_are_listed_once_for_all_tries_of_a_generation(tmp_path: Path) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    run, source = make_run(tmp_path), Csv(path=str(folder))
    with disable_run_logger():
        with pytest.raises(InputError):
            ingest.fn(run, source)
        (folder / "a.csv").write_text("x,y\n1,2\n3,4\n")
        listed = ingest.fn(run, source)
        assert listed.message == "rows that reading counts in 1 file, 0.0 MB"
        assert isinstance(listed.data.read, Read)
        assert (listed.data.read.schema.names, listed.data.bytes_stay) == (["x", "y"], True)
        (folder / "b.csv").write_text("x,y\n5,6\n")
        assert ingest.fn(run.as_new_attempt(), source).message == listed.message
