"""The flow end to end: real files in, real tables out, on one real Ray and one real Prefect server."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import CheckFailed, InputError
from tests import jobs
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, parquet, published, quarantine, write_parquet

MODELS = '''
import numpy as np


class Mean:
    def __call__(self, batch):
        return {"mean": np.array([image.mean() for image in batch["image"]])}


class Picky:
    """Fails for the whole batch when one row is 13."""

    def __call__(self, batch):
        if (batch["x"] == 13).any():
            raise ValueError("thirteen")
        return {"twice": batch["x"] * 2}
'''
DAY = "2026-01-02"


@pytest.fixture(autouse=True, scope="module")
def _models() -> None:
    """The predictors that jobs here name, importable in the workers as anything in PYTHONPATH is."""
    (WORKER_PATH / "flow_test_models.py").write_text(MODELS)


def model(name: str, **settings: Any) -> dict[str, Any]:
    return {"kind": "python", "target": f"flow_test_models:{name}", **settings}


@pytest.mark.slow
def test_a_partition_is_published_left_alone_forced_and_run_again_when_its_inputs_change(
    run_job: RunJob, pictures: Path, tmp_path: Path
) -> None:
    sink, ledger = tmp_path / "out", tmp_path / f"out/_overnight/date={DAY}"
    (pictures / "cat/empty.png").write_bytes(b"")
    job = jobs.job(
        tmp_path,
        source={"kind": "images", "path": f"{tmp_path}/in/date={{partition}}", "label_from": "parent"},
        shuffle={"kind": "files", "seed": 7},
        inference=[model("Mean", batch_size=4)],
        checks={"max_quarantined": 0.2},
    )
    foreign = sink / f"date={DAY}/mine.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"precious")
    foreign_mode = foreign.stat().st_mode & 0o777
    with pytest.raises(CheckFailed, match=r"mine\.parquet"):
        run_job(job, DAY)
    assert foreign.read_bytes() == b"precious"
    foreign.unlink()

    first = run_job(job, DAY)
    rows = {row["row_id"]: row for row in published(first, sink).to_pylist()}
    assert_settled(first)
    assert (first["status"], first["rows_in"], first["rows_quarantined"]) == ("published", 13, 1)
    assert first["stages"].keys() == {"ingest", "shuffle", "preprocess", "infer", "write"}
    assert 0 < first["stages"]["write"]["seconds"] < first["seconds"]
    assert first["performance"]["advice"]
    assert first["performance"]["rows_per_second"] > 0
    assert {row_id: (row["label"], row["mean"]) for row_id, row in rows.items()} == {
        f"{'cat' if i % 2 else 'dog'}/{i:02d}.png": ("cat" if i % 2 else "dog", i * 20.0) for i in range(12)
    }
    assert all(row.keys() == {"row_id", "uri", "label", "mean"} for row in rows.values())
    assert all(row["uri"] == f"{pictures}/{row_id}" for row_id, row in rows.items())
    assert first["left_out"] == ["image"]
    assert (sink / "_overnight").stat().st_mode & 0o777 == 0o700  # the quarantine and the logs hold texts of rows
    assert (sink / first["files"][0]).stat().st_mode & 0o777 == foreign_mode  # as the user's own umask says
    [lost] = quarantine(sink, f"date={DAY}")
    assert (lost["row_id"], lost["stage"]) == ("cat/empty.png", "preprocess")
    assert json.loads((ledger / "receipt.json").read_text()) == first
    assert run_job(job, DAY) == first
    with pytest.raises(CheckFailed, match="published by the job 'small'"):
        run_job(job | {"name": "other"}, DAY)

    sample = run_job(job, DAY, limit_rows=5)
    assert (sample["rows_in"], sample["rows_out"] + sample["rows_quarantined"]) == (5, 5)
    assert json.loads((ledger / "receipt.json").read_text()) == first

    # A forced run that failed is resumed by later runs, which need no force.
    with pytest.raises(CheckFailed, match="min_rows"):
        run_job(job, DAY, force=True, settings=["checks.min_rows=1000"])
    forced = run_job(job, DAY)
    assert forced["generation"] != first["generation"]
    assert forced["rows_resumed"] == forced["rows_in"] == 13
    assert set(forced["files"]).isdisjoint(first["files"])
    assert run_job(job, DAY) == forced

    (pictures / "cat/01.png").unlink()
    changed = run_job(job, DAY)
    assert changed["rows_in"] == 12
    assert len(published(changed, sink)) == 11


@pytest.mark.slow
def test_rows_counted_while_reading_are_settled_a_sample_is_exact_and_one_that_fails_does_not_take_its_batch_along(
    run_job: RunJob, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.csv").write_text("x,name\n" + "".join(f"{x},n\n" for x in range(6)))
    (tmp_path / "in/b.csv").write_text("x,name\n" + "".join(f"{x},n\n" for x in range(6, 20)) + "bad\n")
    job = jobs.job(
        tmp_path,
        source={"kind": "csv", "path": f"{tmp_path}/in"},
        inference=[model("Picky", batch_size=16)],
        checks={"max_quarantined": 0.1},
    )
    assert run_job(job, limit_rows=8)["rows_out"] == 8
    receipt = run_job(job)
    assert_settled(receipt)
    assert (receipt["rows_in"], receipt["rows_out"], receipt["rows_quarantined"]) == (21, 19, 2)
    twice = published(receipt, tmp_path / "out")["twice"].to_pylist()
    assert sorted(twice) == [2 * x for x in range(20) if x != 13]
    lost = {row["row_id"]: row for row in quarantine(tmp_path / "out", "all")}
    assert lost.keys() == {"b.csv#7", "b.csv#14"}
    line = MODELS.partition("thirteen")[0].count("\n") + 1
    assert [lost["b.csv#7"][name] for name in ("stage", "error_type", "error_message")] == [
        "infer",
        "ValueError",
        f"thirteen (flow_test_models.py:{line}, in __call__)",
    ]


@pytest.mark.slow
def test_inputs_without_a_row_replace_nothing_unless_that_is_allowed_and_what_was_passed_over_is_told(
    run_job: RunJob, tmp_path: Path
) -> None:
    place = tmp_path / "in" / DAY
    place.mkdir(parents=True)
    (place / "a.csv").write_text("id\n" + "1\n" * 60)
    job = jobs.job(tmp_path, source={"kind": "csv", "path": f"{tmp_path}/in/{{partition}}"}, checks={"min_rows": 50})
    receipt = run_job(job, DAY)
    (place / "a.csv").write_text("id\n")
    with pytest.raises(CheckFailed, match=r"(?s)allow_empty.*min_rows"):
        run_job(job, DAY, force=True)
    assert published(receipt, tmp_path / "out").num_rows == 60
    (place / "a.csv").unlink()
    (place / "_SUCCESS").touch()
    os.mkfifo(place / "a.csv")
    with pytest.raises(InputError):
        run_job(job, DAY)
    job["source"]["allow_empty"] = True
    empty = run_job(job, DAY, force=True)
    assert (empty["rows_in"], empty["rows_out"], empty["files"]) == (0, 0, [])
    assert empty["passed_over"] == {
        "FIFO": {"files": 1, "names": ["a.csv"]},
        "name that begins with _ or .": {"files": 1, "names": ["_SUCCESS"]},
    }


def test_after_a_failure_of_the_inputs_they_are_listed_anew_and_after_another_those_that_were_listed_run_on(
    run_job: RunJob, tmp_path: Path
) -> None:
    source, ledger = tmp_path / "in", tmp_path / "out/_overnight/all"
    failure, kept = ledger / "failure.json", ledger / "failure-quarantine.parquet"
    write_parquet(source / "a.parquet", x=range(10))
    (source / "b.parquet").write_bytes(b"cut off")
    job = jobs.job(tmp_path, source=parquet(tmp_path))
    with pytest.raises(CheckFailed, match="1 of 2 files cannot be read") as caught:
        run_job(job)
    assert str(kept) in str(caught.value)
    record = json.loads(failure.read_text())
    assert record["quarantine"] == str(kept)
    assert record["stages"]["ingest"]["rows"] >= 10
    assert record["started_at"] <= record["samples"]["started_at"] <= record["failed_at"]
    [row] = pq.read_table(kept).to_pylist()
    assert (row["row_id"], row["stage"]) == ("b.parquet", "ingest")

    write_parquet(source / "b.parquet", x=range(10, 20))
    with pytest.raises(CheckFailed, match="min_rows"):
        run_job(job | {"checks": {"min_rows": 21}})

    failure.write_text(json.dumps(json.loads(failure.read_text()) | {"error_type": "StorageFailed"}))
    write_parquet(source / "c.parquet", x=range(20, 30))
    receipt = run_job(job)
    assert sorted(published(receipt, tmp_path / "out")["x"].to_pylist()) == list(range(20))
    assert receipt["rows_resumed"] == 20
    assert not kept.exists()
