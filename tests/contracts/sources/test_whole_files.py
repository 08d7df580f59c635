"""The promises of sources whose rows are whole files."""

from pathlib import Path

import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from tests.contracts.sources.reading import read_all
from tests.contracts.sources.suite import SOURCES
from tests.contracts.sources.whole_files import WholeFilesAdapter

OTHERS = SOURCES.kinds - {"images", "audio", "video", "pdf", "text"}
ROWS_IN_FILES = dict.fromkeys(OTHERS, "Its rows are in files or tables, not whole files")


@SOURCES.promise("the folder of a file is its label, and the extension may have any case", **ROWS_IN_FILES)
def test_a_file_is_labelled_by_its_folder(leaf: WholeFilesAdapter, tmp_path: Path) -> None:
    paths = [f"one/a{leaf.extension.upper()}", f"two/deep/b{leaf.extension}", f"100% é/c{leaf.extension}"]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(b"content")
    found = read_all(leaf.source(tmp_path, label_from="parent")).good
    assert {name: row["label"] for name, row in found.items()} == dict(
        zip(paths, ["one", "deep", "100% é"], strict=True)
    )


@SOURCES.promise("the column has one type, which holds more than 2 GB of bytes", **ROWS_IN_FILES)
def test_the_column_holds_large_files(leaf: WholeFilesAdapter, tmp_path: Path) -> None:
    leaf.write(tmp_path, "a", leaf.rows(1))
    [schema] = read_all(leaf.source(tmp_path)).schemas
    assert schema.field(leaf.leaf.column).type == (pa.string() if leaf.kind == "text" else pa.large_binary())


@SOURCES.promise("more files than are fetched at a time all arrive", **ROWS_IN_FILES)
def test_many_files_arrive(leaf: WholeFilesAdapter, tmp_path: Path) -> None:
    leaf.write(tmp_path, "a", leaf.rows(200))
    values = [str(row[leaf.leaf.column]) for row in read_all(leaf.source(tmp_path)).data()]
    assert sorted(values) == sorted(str(row[leaf.leaf.column]) for row in leaf.expected(tmp_path))
    assert len(set(values)) == 200


@SOURCES.promise("a folder of other files says which extensions were expected", **ROWS_IN_FILES)
def test_a_folder_of_other_files_is_refused(leaf: WholeFilesAdapter, tmp_path: Path) -> None:
    (tmp_path / "notes.nothing").write_bytes(b"x")
    with pytest.raises(InputError) as caught:
        list_inputs(leaf.source(tmp_path), "all")
    assert leaf.extension in str(caught.value)
