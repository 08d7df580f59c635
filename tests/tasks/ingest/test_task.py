"""The door of ingest: what it lists once, and tells of it."""

import tarfile
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.reading.read_units import Read
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.webdataset import WebDataset
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


@pytest.mark.parametrize(("kind", "bytes_stay"), [("csv", True), ("webdataset", False), ("images", False)])
def test_bytes_of_tables_are_published_and_contents_of_files_are_not(
    tmp_path: Path, kind: str, bytes_stay: bool
) -> None:
    (tmp_path / "in").mkdir()
    make = {"csv": Csv, "webdataset": WebDataset, "images": Images}[kind]
    with tarfile.open(tmp_path / "in/a.tar", "w") as tar:
        tar.add(__file__, "a.txt")
    (tmp_path / "in/a.csv").write_text("x\n1\n")
    (tmp_path / "in/a.png").write_bytes(b"an image")
    with disable_run_logger():
        listed = ingest.fn(make_run(tmp_path), make(path=str(tmp_path / "in")))
    assert listed.data.bytes_stay == bytes_stay
