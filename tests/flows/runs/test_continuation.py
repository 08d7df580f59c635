"""Which rows of a published partition stay and which run, decided from the ledger and a listing, before any run."""

import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.flows.runs.attempt import Scope, fresh_receipt, opened
from overnight.flows.runs.continuation import Continuation, plan_late, plan_retry, with_plans
from overnight.flows.runs.run import describe_run
from overnight.tasks.config.masking import masked_in
from overnight.tasks.errors import JobError, RetryRefused
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.rows import blocks
from overnight.tasks.state.garbage import list_sizes, removable
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.published_rows import PublishedRows, leave_record
from overnight.tasks.state.row_ranges import RANGES
from overnight.tasks.state.run import Run, read_json, unfinished_generation, write_json
from overnight.tasks.state.staged_parts import read_part, read_records
from overnight.tasks.storage.location import Location
from tests import jobs

CODE = Path("retry_plan_models.py")  # in the working directory, which is the test's own folder
Change = Callable[[dict[str, Any], Path], Any]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", list(sys.path))  # without the folders of the tests before


def settings(folder: Path) -> dict[str, Any]:
    return jobs.job(
        folder,
        name="job",
        source={"kind": "parquet", "path": f"{folder}/in"},
        preprocess=[{"kind": "filter_rows", "expression": "x > 0"}],
        inference=[
            {"kind": "python", "name": "code", "target": "retry_plan_models:Model"},
            {"kind": "onnx", "name": "net", "file": f"{folder}/model.onnx", "columns": ["x"]},
        ],
    )


def fix_code() -> None:
    CODE.write_text("class Model:\n    fixed = True\n")


def change_weights(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"other weights")


def write_rows(path: Path, *values: int) -> None:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"x": pa.array(values, pa.int64())}), path)


def published(folder: Path, quarantined: int = 1, others: int = 0) -> Run:
    """A published run of three rows, as its publish leaves it; the first rows are quarantined. `b` has `others`."""
    CODE.write_text("class Model: ...\n")
    (folder / "model.onnx").write_bytes(b"weights")
    write_rows(folder / "in/a.parquet", 1, 2, 3)
    if others:
        write_rows(folder / "in/b.parquet", *range(others))
    job = Job.model_validate(settings(folder))
    run = replace(describe_run(job, "all"), generation="20260101T000000-g1")
    take_manifest(run.manifest, job.source, "all")
    row_ids = [f"a.parquet#{n}" for n in range(quarantined, 3)] + [f"b.parquet#{n}" for n in range(others)]
    rows_out = len(row_ids)
    table = pa.table({"row_id": pa.array(row_ids, pa.string()), "x": pa.array(range(rows_out), pa.int64())})
    pq.write_table(table, folder / "out" / "part-1.parquet")
    by_file = {"part-1.parquet": {"rows": rows_out, "bytes": 9, "columns": {}}}
    ranges = [(0, 0, quarantined, blocks.QUARANTINED), (0, quarantined, 3, blocks.LIVE), (1, 0, others, blocks.LIVE)]
    rows = [dict(zip(RANGES.names, one, strict=True)) for one in ranges if one[1] < one[2]]
    schema = pa.schema([("row_id", pa.string()), *((name, pa.int64()) for name in ("x", "__unit", "__row"))])
    kept = PublishedRows((), rows_out, {"row_id": "string", "x": "int64"}, {}, by_file)
    leave_record(run, schema, pa.Table.from_pylist(rows, RANGES), kept, ())
    write_json(run.home / "generation.json", {"fingerprint": run.fingerprint, "format_version": 1})
    receipt = {
        **{"job": run.job, "generation": run.generation, "fingerprint": run.fingerprint, "attempt": run.attempt},
        **{"ingredients": masked_in(job.ingredients()), "rows_quarantined": quarantined, "files": ["part-1.parquet"]},
        **{
            "rows_out": rows_out,
            "rows_written": rows_out,
            "rows_in": 3 + others,
            "finished_at": "2026-01-01T00:00:00Z",
        },
        "inputs": read_manifest(run.manifest, [])[1],
    }
    write_json(run.ledger / "receipts" / f"{run.generation}.json", receipt)
    write_json(run.ledger / "receipt.json", receipt)
    return run


def planned(folder: Path, changed: dict[str, Any] | None = None) -> Continuation | None:
    job = Job.model_validate(changed or settings(folder))
    return plan_retry(job, describe_run(job, "all"))


def test_a_retry_may_begin_if_nothing_or_only_code_changed(tmp_path: Path) -> None:
    run = published(tmp_path)
    same = planned(tmp_path)
    assert same
    assert (same.code, same.receipt["generation"]) == ((), run.generation)
    fix_code()
    fixed = planned(tmp_path)
    assert fixed
    assert fixed.code == ("files of inference.code changed: retry_plan_models.py",)
    assert len({same.run.fingerprint, fixed.run.fingerprint, run.fingerprint}) == 3
    assert planned(tmp_path, settings(tmp_path) | {"row_timeout_seconds": 9})


def test_a_partition_without_quarantined_rows_has_nothing_to_retry(tmp_path: Path) -> None:
    published(tmp_path, quarantined=0)
    assert planned(tmp_path) is None


def check_texts(job: dict[str, Any], folder: Path) -> None:
    job["checks"] = {"python": "retry_plan_models:Model"}
    receipt = folder / "out/_overnight/all/receipt.json"
    receipt.write_text(receipt.read_text().replace("part-1.parquet", "part-1.jsonl"))
    (folder / "out/part-1.jsonl").touch()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda _, at: change_weights(at), r"inference.net changed: model.onnx.*`overnight run JOB.yaml`"),
        (lambda _, at: [change_weights(at), fix_code()], "inference.code changed: .*; .*inference.net changed"),
        (lambda job, _: [job["preprocess"][0].update(expression="x > 1"), fix_code()], "expression: x > 0 -> x > 1"),
        (lambda _, at: write_rows(at / "in/a.parquet", 1, 2), r"not quarantined changed: 1 changed \(a.parquet\)"),
        (lambda _, at: write_rows(at / "in/b.parquet", 1, 2), r"changed: 1 new \(b.parquet\)"),
        (lambda _, at: shutil.rmtree(next(at.glob("out/**/settled"))), "no record of its rows.*`.* --force`"),
        (lambda _, at: (at / "out/part-1.parquet").unlink(), "no longer has the published file .*part-1.parquet"),
        (lambda _, at: (at / "out/_overnight/all/receipt.json").unlink(), "job/all cannot run alone: .*not published"),
        (lambda job, _: job.update(name="other"), "other/all cannot run alone: .*not published"),
        (lambda job, _: job["preprocess"].append({"kind": "deduplicate", "columns": ["x"]}), "deduplicate.*--force`"),
        (check_texts, "checks.python reads all rows"),
    ],
)
def test_a_retry_that_would_not_be_exact_is_refused_with_what_changed_and_the_command(
    change: Change, said: str, tmp_path: Path
) -> None:
    published(tmp_path)
    job = settings(tmp_path)
    change(job, tmp_path)
    with pytest.raises(RetryRefused, match=said):
        planned(tmp_path, job)


def test_a_partition_of_which_every_row_is_quarantined_runs_as_a_whole(tmp_path: Path) -> None:
    published(tmp_path, quarantined=3)
    with pytest.raises(RetryRefused, match="all of its rows are quarantined"):
        planned(tmp_path)


def test_a_retry_excludes_a_forced_run_and_a_sample(tmp_path: Path) -> None:
    published(tmp_path)
    job = Job.model_validate(settings(tmp_path))
    for options, limit_rows in (({"force": True}, 0), ({}, 2)):
        with pytest.raises(JobError, match="force" if options else "limit_rows"):
            plan_retry(job, describe_run(job, "all", limit_rows=limit_rows), **options)


def test_a_retry_that_died_is_resumed_by_a_retry_alone_and_kept_by_clean(tmp_path: Path) -> None:
    run = published(tmp_path)
    job = Job.model_validate(settings(tmp_path))

    def dies(retry: Continuation) -> str:
        with opened(job, retry, force=False) as begun:
            (part,) = read_records(begun.parts)
            assert [(row["start"], row["stop"]) for row in part.ranges.to_pylist()] == [(1, 3)]
            assert read_manifest(begun.manifest)[0] == read_manifest(run.manifest)[0]
            return begun.generation

    def plan() -> Continuation:
        retry = plan_retry(job, describe_run(job, "all"))
        assert retry
        return retry

    name = dies(plan())
    assert dies(plan()) == name
    whole = describe_run(job, "all")
    assert unfinished_generation(run.ledger, whole.fingerprint) is None
    assert fresh_receipt(job, whole) == read_json(run.ledger / "receipt.json")
    forced = replace(run, generation="20260102T000000-forced")
    write_json(forced.home / "generation.json", {"fingerprint": whole.fingerprint, "format_version": 1})
    assert unfinished_generation(run.ledger, whole.fingerprint) == forced.generation
    write_json(run.ledger / "receipts" / f"{name}.json", {})
    assert unfinished_generation(run.ledger, whole.fingerprint) is None  # the published retry is newer
    (run.ledger / "receipts" / f"{name}.json").remove()
    forced.home.remove()
    (entry,) = read_ledger(job)
    assert (entry.status, entry.begun) == ("published", False)
    files = list_sizes(run.ledger)
    receipt = read_json(run.ledger / "receipt.json")
    assert not [item.what for item in removable(whole, receipt, files, 30, "") if item.what == f"generations/{name}"]
    assert [item.what for item in removable(whole, receipt, files, 30, "9") if name in item.what]
    write_rows(tmp_path / "in/no-rows.parquet")  # other inputs, and not another row
    assert dies(plan()) != name


def test_a_retry_does_not_begin_on_a_partition_that_was_published_meanwhile(tmp_path: Path) -> None:
    run = published(tmp_path)
    retry = planned(tmp_path)
    assert retry
    write_json(run.ledger / "receipt.json", {**retry.receipt, "generation": "20260102T000000-g2"})
    with pytest.raises(RetryRefused, match="another run published it meanwhile"):
        retry.begin(replace(retry.run, generation="20260103T000000-g3"))


def late(folder: Path, changed: dict[str, Any] | None = None) -> Scope:
    job = Job.model_validate(changed or settings(folder))
    return plan_late(job, describe_run(job, "all"))


def test_rows_of_new_and_changed_files_run_and_the_others_stay_without_a_model(tmp_path: Path) -> None:
    run = published(tmp_path, others=4)
    write_rows(tmp_path / "in/a.parquet", 7, 8)
    write_rows(tmp_path / "in/aa.parquet", 9)
    plan = late(tmp_path)
    assert {**plan.plan, "why": ""} == {
        "rows_reused": 4, "rows_to_run": 3, "files_new": 1, "files_changed": 1, "files_gone": 0, "files_replaced": 1,
        "why": "",
    }  # fmt: skip
    assert plan.plan["why"] == ["inputs changed: 1 new (aa.parquet); 1 changed (a.parquet)"]
    assert plan.announcement.endswith(": 3 rows run, 4 rows stay as they are published, 1 published files are replaced")
    job = Job.model_validate(settings(tmp_path))
    [entry] = with_plans(job, read_ledger(job, inputs=True))
    assert (entry.status, entry.plan) == ("stale", plan.plan)
    names = []
    for _ in range(2):  # the second one resumes
        with opened(job, late(tmp_path), force=False) as begun:
            names.append(begun.generation)
            kept, settled = read_records(begun.parts)
            assert read_part(begun.parts, kept)["row_id"].to_pylist() == [f"b.parquet#{n}" for n in range(4)]
            assert [(row["unit"], row["start"], row["stop"]) for row in settled.ranges.to_pylist()] == [(2, 0, 4)]
            assert read_manifest(begun.manifest)[0]["path"].to_pylist() == ["a.parquet", "aa.parquet", "b.parquet"]
    assert names[0] == names[1] != run.generation
    write_rows(tmp_path / "in/c.parquet", 1)
    with opened(job, late(tmp_path), force=False) as begun:
        assert begun.generation not in names


def test_a_deleted_file_takes_its_rows_out_of_the_quarantine_too(tmp_path: Path) -> None:
    published(tmp_path, others=4)
    (tmp_path / "in/a.parquet").unlink()
    plan = late(tmp_path)
    assert (plan.plan["rows_reused"], plan.plan["rows_to_run"], plan.plan["files_gone"]) == (4, 0, 1)
    with opened(Job.model_validate(settings(tmp_path)), plan, force=False) as begun:
        assert read_manifest(begun.manifest)[0]["path"].to_pylist() == ["b.parquet"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda job, _: job["source"].update(late="again"), "source.late is again"),
        (
            lambda job, _: job["source"].update(wait_for={"file": "_SUCCESS"}),
            "still arriving: expected the file .*_SUC",
        ),
        (lambda _, at: write_columns(at / "in/c.parquet"), "other columns than the published rows: y"),
        (lambda _, at: shutil.rmtree(next(at.glob("out/**/settled"))), "no record of its rows"),
        (lambda _, at: (at / "out/part-1.parquet").unlink(), "no longer has the published file"),
        (lambda _, at: rename_row(at / "out/part-1.parquet"), "row elsewhere#3 does not have the name of its input"),
        (lambda _, at: forget_row(at / "out/part-1.parquet"), "files have 5 rows of 2 inputs, not those"),
        (lambda _, at: fail(at, "OtherColumns"), "the latest attempt found other columns"),
        (lambda _, at: write_rows(at / "in/b.parquet", 5), "no row of it stays"),
    ],
)
def test_all_rows_run_with_the_reason_if_the_published_rows_cannot_stay_exactly(
    change: Change, reason: str, tmp_path: Path
) -> None:
    published(tmp_path, others=4)
    write_rows(tmp_path / "in/a.parquet", 7, 8)
    job = settings(tmp_path)
    change(job, tmp_path)
    plan = late(tmp_path, job)
    assert not isinstance(plan, Continuation)
    assert re.search(reason, plan.all_rows)
    assert plan.begin(plan.run) == {"all_rows": plan.all_rows}
    assert plan.announcement == f"only inputs changed, but {plan.all_rows}: all rows run"


def write_columns(path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": [2]}), path)


def rename_row(path: Path) -> None:
    rows = pq.read_table(path)
    names = pa.array([*rows["row_id"].to_pylist()[:-1], "elsewhere#3"])
    pq.write_table(rows.set_column(0, "row_id", names), path)


def forget_row(path: Path) -> None:
    pq.write_table(pq.read_table(path)[:-1], path)


def fail(folder: Path, kind: str) -> None:
    write_json(Location(f"{folder}/out/_overnight/all/failure.json"), {"job": "job", "error_type": kind})


def test_changed_settings_and_an_abandoned_run_of_all_rows_need_no_reason(tmp_path: Path) -> None:
    run = published(tmp_path, others=4)
    write_rows(tmp_path / "in/a.parquet", 7, 8)
    job = settings(tmp_path)
    job["preprocess"][0].update(expression="x > 1")
    assert late(tmp_path, job).plan == {}
    forced = replace(run, generation="20260102T000000-forced")
    write_json(forced.home / "generation.json", {"fingerprint": run.fingerprint, "format_version": 1})
    assert late(tmp_path).plan == {}
