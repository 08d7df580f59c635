"""A contender that skips work, doubles it or finds something else does not count."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROWS, ORIGINALS, DIMENSIONS = 40, 5, 8
ALL = list(range(ROWS))
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


def write(judge: Any, rows: Any, change: Any = lambda vectors: vectors, folder: str = "out") -> Path:
    """Results of those rows as a contender writes them, in two files."""
    out = judge.data / folder
    out.mkdir(parents=True)
    vectors = np.array(pq.read_table(judge.reference)["exact"].to_pylist(), np.float32)
    for number, part in enumerate(np.array_split(rows, 2)):
        paths = [f"file:///x/{row:06d}_photo-{row % ORIGINALS}.jpg" for row in part]
        found = list(change(vectors[part % ORIGINALS]))
        pq.write_table(pa.table({"path": paths, "embedding": found}), out / f"{number}.parquet")
    return judge.data / "out"


def test_results_like_the_reference_count_in_whatever_order(judge: Any) -> None:
    order = np.random.default_rng(1).permutation(ROWS)
    assert judge.difference(write(judge, order), "exact") < 1e-6


@pytest.mark.parametrize(
    ("written", "limit", "fact"),
    [
        ((ALL[:-1],), "exact", "expected 40 rows, each once, found 39, 39"),
        (([*ALL[:-1], 0],), "exact", "found 40, 39 of them distinct"),
        ((ALL[:-1],), "rows", "found 39"),  # a limit too has to go through all rows
        ((ALL, lambda found: np.roll(found, 1, axis=0)), "near", "nearer to another"),
        ((ALL, lambda found: found * 1.1), "exact", r"within 0.01 of exact"),
        ((ALL, lambda found: found * np.nan), "exact", ""),
        ((ALL, lambda found: found, "out/_overnight"), "exact", "found none"),  # staged or hidden
    ],
    ids=["left out", "doubled", "limit", "another row's", "beyond the tolerance", "no numbers", "staged"],
)
def test_results_that_differ_do_not_count(
    agreement: Any, judge: Any, written: tuple[Any, ...], limit: str, fact: str
) -> None:
    with pytest.raises(agreement.Disagreement, match=fact):
        judge.difference(write(judge, *written), limit)
