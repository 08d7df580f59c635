"""Duplicates in a whole job: the first row of the partition stays, also of a sample.

tests/chaos/test_kills.py kills the runs of a job that drops duplicates before its model and behind it.
"""

from pathlib import Path

import pytest

from tests import jobs
from tests.flows.conftest import RunJob, published

TEXTS = {"a": "one", "b": "two", "c": "one", "d": "three", "e": "two"}


@pytest.mark.slow
def test_equal_rows_of_files_and_of_a_sample_are_published_once(tmp_path: Path, run_job: RunJob) -> None:
    (tmp_path / "in").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / f"in/{name}.txt").write_text(text)
    source = {"kind": "text", "path": f"{tmp_path}/in"}
    equal = {"kind": "deduplicate", "columns": ["text"]}
    job = jobs.job(tmp_path, source=source, inference=[equal])
    counts = ("rows_in", "rows_out", "rows_filtered", "rows_duplicate")
    assert [run_job(job, limit_rows=3)[name] for name in counts] == [3, 2, 1, 1]
    receipt = run_job(job)
    assert sorted(published(receipt, tmp_path / "out")["row_id"].to_pylist()) == ["a.txt", "b.txt", "d.txt"]
    assert [receipt[name] for name in counts] == [5, 3, 2, 2]
    generation = tmp_path / "out/_overnight/all/generations" / receipt["generation"]
    assert not list(generation.glob("duplicates/*")), "a published generation needs no decision"
