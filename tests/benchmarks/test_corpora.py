"""The comparison with reference readers on public corpora, over a folder with one right and one broken file a kind."""

import gzip
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.contracts.steps.adapters.media import image
from tests.fuzz.sources import parquet, tar
from tests.tasks.preprocess.pdfs import pdf
from tests.tasks.preprocess.sounds import WHOLE

CORPORA = Path(__file__).resolve().parents[2] / "benchmarks" / "corpora"


PARQUET, IMAGE = parquet(pa.table({"x": [7]})), image(8, 9, "PNG")
# By kind: where its corpus is, and how its files end; a file that all read, with one row, and one that none reads.
FILES = {
    "images": ("Pillow/Tests/images/{}.png", IMAGE, IMAGE[:60]),
    "Parquet": ("parquet-testing/{}.parquet", PARQUET, PARQUET[:-9]),
    "Parquet, by DuckDB": ("parquet-testing/{}.parquet", PARQUET, PARQUET[:-9]),
    "JSON documents": ("JSONTestSuite/test_parsing/{}.json", b'{\n"a": [1]}', b'{"a": [1'),
    "values in JSON Lines": ("JSONTestSuite/test_parsing/{}.json", b'{\n"a": [1]}', b'{"a": [1'),
    "CSV": ("csv-spectrum/csvs/{}.csv", b"a,b\n1,x\n", b"a,b\n1\n"),
    "PDF files": ("sample-files/{}.pdf", pdf([["Hello"]]), pdf([["Hello"]])[:90]),
    "sounds": ("libsndfile/{}.wav", WHOLE, WHOLE[:20]),
    "texts": ("chardet/tests/utf-8/{}.txt", "Grüße".encode(), b"Gr\xfc\xdfe"),
    "WebDataset shards": ("webdataset/testdata/{}.tar.gz", gzip.compress(tar({"a.txt": b"hello"})), b"no tar"),
}


@pytest.fixture(scope="module")
def script() -> Iterator[Any]:
    sys.path.insert(0, str(CORPORA))
    import compare

    yield compare
    sys.path.remove(str(CORPORA))
    for name in [name for name, one in list(sys.modules.items()) if str(CORPORA) in str(getattr(one, "__file__", ""))]:
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def process(script: Any) -> Iterator[Any]:
    with script.Apart(60) as process:
        yield process


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place, right, broken in FILES.values():
        for name, content in (("right", right), ("broken", broken)):
            file = tmp_path / place.format(name)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return tmp_path


@pytest.fixture
def compare(script: Any, process: Any, folder: Path) -> Callable[..., Any]:
    """Compares the files of a kind, with a fault in our reader or without. The outcome of each file."""

    def run(name: str, fault: Callable[..., list[Any]] | None = None) -> Any:
        [kind] = [kind for kind in script.KINDS if kind.name == name]
        return script.compare(replace(kind, ours=partial(fault, kind.ours)) if fault else kind, folder, process)

    return run


def changing(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    return [_other(row) for row in read(path)]


def _other(row: Any) -> Any:
    if isinstance(row, np.ndarray):
        return row + 1
    if isinstance(row, dict):
        return {name: [value] for name, value in row.items()}
    return row if hasattr(row, "reason") else (row[0], "other" if isinstance(row[1], str) else row[1] + 0.5)


def losing(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    return read(path)[1:]


def doubling(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    return read(path) * 2


def refusing(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    from judging import Refused

    return [Refused("no reason") for _ in read(path)]


def dying(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    os._exit(3)


def raising(read: Callable[[Path], list[Any]], path: Path) -> list[Any]:
    raise OSError("not of a row")


@pytest.mark.parametrize("name", FILES)
def test_a_right_file_is_the_same_a_broken_one_is_refused_by_both_and_each_fault_of_ours_is_seen(
    compare: Callable[..., Any], folder: Path, name: str
) -> None:
    found = compare(name)
    assert (found.files, found.counts) == (2, {"same": 1, "refused by both": 1}), found.notes
    (folder / FILES[name][0].format("broken")).unlink()
    for fault, outcome in ((changing, "different"), (losing, "different"), (refusing, "refused by us only")):
        found = compare(name, fault)
        assert found.counts == {outcome: 1}, found.notes


def test_a_reader_that_dies_or_raises_is_a_crash_and_the_next_file_is_read(compare: Callable[..., Any]) -> None:
    for fault, reason in ((dying, "the process ended with exit status 3"), (raising, "OSError: not of a row")):
        notes = [(outcome, told) for _, outcome, told in compare("CSV", fault).notes]
        assert notes == [("crashes", reason)] * 2
    assert compare("CSV").counts["same"] == 1
    assert compare("CSV", doubling).counts == {"same": 1, "refused by both": 1, "different": 2}


def test_the_script_prints_a_table_and_names_the_corpora_that_are_missing(
    script: Any, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main([str(folder), "--kind", "CSV"]) == 0
    printed = capsys.readouterr()
    assert "| CSV | 2 | 2 | 1 | 0 | 1 | 0 | 0 | 0 |" in printed.out
    assert f"CSV: {folder / 'arrow-testing/data/csv'} is missing" in printed.err
