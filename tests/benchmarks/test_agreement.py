"""A contender that skips work, doubles it or finds something else does not count."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, ORIGINALS, DIMENSIONS = 40, 5, 8
BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def agreement(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import agreement

    yield agreement
    sys.modules.pop("agreement")


@pytest.fixture
def judge(agreement: Any, tmp_path: Path) -> Any:
    vectors = np.random.default_rng(0).normal(size=(ORIGINALS, DIMENSIONS)).astype(np.float32)
    reference = {"name": [f"photo-{i}" for i in range(ORIGINALS)], "exact": vectors.tolist()}
    pq.write_table(pa.table(reference), tmp_path / "reference.parquet")
    return agreement.Judge("photos", tmp_path, ROWS, {"exact": 0.01, "near": 0.5}, tmp_path / "reference.parquet")


def write(judge: Any, rows: list[int], change: Any = lambda vectors: vectors, files: int = 2) -> Path:
    """Results of those rows as a contender writes them, in several files."""
    out = judge.data / "out"
    out.mkdir()
    vectors = np.array(pq.read_table(judge.reference)["exact"].to_pylist(), np.float32)
    for number, part in enumerate(np.array_split(rows, files)):
        found = change(vectors[part % ORIGINALS])
        paths = [f"file:///x/{row:06d}_photo-{row % ORIGINALS}.jpg" for row in part]
        pq.write_table(pa.table({"path": paths, "embedding": list(found)}), out / f"{number}.parquet")
    return out


def test_results_like_the_reference_count_in_whatever_order(judge: Any) -> None:
    order = np.random.default_rng(1).permutation(ROWS)
    assert judge.difference(write(judge, order), "exact") < 1e-6


def test_a_row_left_out_does_not_count(agreement: Any, judge: Any) -> None:
    with pytest.raises(agreement.Disagreement, match="expected 40 rows, each once, found 39, 39"):
        judge.difference(write(judge, list(range(ROWS - 1))), "exact")


def test_a_row_left_out_and_another_doubled_does_not_count(agreement: Any, judge: Any) -> None:
    with pytest.raises(agreement.Disagreement, match="found 40, 39 of them distinct"):
        judge.difference(write(judge, [*range(ROWS - 1), 0]), "exact")


def test_a_limit_too_has_to_go_through_all_rows(agreement: Any, judge: Any) -> None:
    with pytest.raises(agreement.Disagreement):
        judge.difference(write(judge, list(range(ROWS - 1))), "rows")


def test_embeddings_that_are_another_row_s_do_not_count(agreement: Any, judge: Any) -> None:
    with pytest.raises(agreement.Disagreement, match="nearer to another"):
        judge.difference(write(judge, list(range(ROWS)), lambda found: np.roll(found, 1, axis=0)), "near")


def test_embeddings_that_differ_more_than_the_tolerance_do_not_count(agreement: Any, judge: Any) -> None:
    with pytest.raises(agreement.Disagreement, match=r"within 0.01 of exact"):
        judge.difference(write(judge, list(range(ROWS)), lambda found: found * 1.1), "exact")


def test_embeddings_that_are_not_numbers_do_not_count(agreement: Any, judge: Any) -> None:
    with pytest.raises(agreement.Disagreement):
        judge.difference(write(judge, list(range(ROWS)), lambda found: found * np.nan), "exact")


def test_nothing_written_does_not_count(agreement: Any, judge: Any) -> None:
    (judge.data / "out").mkdir()
    with pytest.raises(agreement.Disagreement, match="found none"):
        judge.difference(judge.data / "out", "exact")


def test_what_is_staged_or_hidden_is_no_result(agreement: Any, judge: Any) -> None:
    out = write(judge, list(range(ROWS)))
    out.rename(judge.data / "_out")
    (judge.data / "out").mkdir()
    (judge.data / "_out").rename(judge.data / "out/_overnight")
    with pytest.raises(agreement.Disagreement, match="found none"):
        judge.difference(judge.data / "out", "exact")
