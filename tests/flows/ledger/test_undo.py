"""`overnight undo` of a job: what runs, status, retries and `clean` make of it; readers never see a mixture."""

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner
from prefect.logging import disable_run_logger
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from overnight.cli.main import main
from overnight.flows.history.changes import changes_between
from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.ledger.partition_status import PartitionStatus, read_ledger
from overnight.flows.ledger.results import NoResult, Results
from overnight.flows.ledger.undo import undo
from overnight.flows.report.verdict import judge
from overnight.flows.runs.attempt import Scope, fresh_receipt, opened
from overnight.flows.runs.continuation import plan_retry
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.run_after import PUBLISHED
from overnight.tasks.errors import JobError, NotKept, RetryRefused
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.rows import blocks
from overnight.tasks.state import staged_parts
from overnight.tasks.state.manifest import read_manifest
from overnight.tasks.state.run import write_json
from overnight.tasks.write.publish.continued import leave_for_next
from overnight.tasks.write.publish.publish import prepared, publish
from overnight.tasks.write.sinks.parquet import ParquetSink
from tests import webhook as webhooks
from tests.chaos.runs import wait_for
from tests.contracts.sinks.publications import receipt_of, records_of, stage
from tests.prefect_api import ask

OLD, NEW = [1, 2, 3], [4, 5, 6]
BAD = {"row_id": "a.csv#3", "uri": "a.csv", "stage": "infer", "error_type": "ValueError", "error_message": "bad"}


def job_in(folder: Path, factor: int = 1, **sink: Any) -> Job:
    (folder / "in").mkdir(exist_ok=True)
    if not (folder / "in/a.csv").exists():
        (folder / "in/a.csv").write_text("n\n1\n2\n3\n4\n")
    step = {"kind": "derive_columns", "columns": {"x": f"n * {factor}"}}
    sink = {"kind": "parquet", "path": str(folder / "out"), "keep_publications": 1} | sink
    job = {"name": "j", "source": {"kind": "csv", "path": str(folder / "in")}, "preprocess": [step], "sink": sink}
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return load_job(folder / "job.yaml")


def published(job: Job, numbers: list[int]) -> dict[str, Any]:
    """Publish these rows of the partition `all`, and a quarantined one, as a run does."""
    with disable_run_logger(), opened(job, Scope(describe_run(job, "all")), force=True) as run:
        take_manifest(run.manifest, job.source, "all")
        stage(run, {"x": numbers})
        records, merged = records_of(run)
        count = len(numbers)
        bad = {"unit": 0, "start": count, "stop": count + 1, "state": blocks.QUARANTINED, "part": 0}
        merged = pa.concat_tables([merged, pa.Table.from_pylist([bad], merged.schema)])
        with prepared(run, job.sink, records, merged) as ready:
            receipt = {
                **receipt_of(run, job.sink, ready),
                **{"status": "published", "ingredients": run.ingredients, "commits": {}, "rows_quarantined": 1},
                **{"inputs": read_manifest(run.manifest, [])[1], "rows_filtered": 0, "rows_written": len(numbers)},
                **{"token": run.token, "settings": job.settings(), "limit_rows": None, "reason": "", "seconds": 1.0},
            }
            leave_for_next(run, records, merged, ready, receipt["files"])
            errors = pa.Table.from_pylist([BAD], staged_parts.QUARANTINE)
            return publish(run, job.sink, ready, errors, receipt)


def entry_of(job: Job, inputs: bool = False) -> PartitionStatus:
    [entry] = read_ledger(job, inputs=inputs)
    return entry


def rows_of(job: Job, name: str = "all") -> list[int]:
    tables = Results(job, "job.yaml", job.published).named(name).batches(["x"])
    return sorted(value for table in tables for value in table["x"].to_pylist())


def test_the_unchanged_job_does_not_publish_the_undone_rows_again(tmp_path: Path) -> None:
    published(job_in(tmp_path), OLD)
    job = job_in(tmp_path, factor=2)
    assert entry_of(job).status == "stale"
    undone = published(job, NEW)["generation"]
    receipt = undo(job, reason="wrong factor")
    assert rows_of(job) == OLD
    assert fresh_receipt(job, describe_run(job, "all")) == receipt
    for inputs in (False, True):
        entry = entry_of(job, inputs)
        assert entry.status == "published"
        [reason] = entry.why
        assert f"undid {undone}" in reason
        assert "(wrong factor); only --force, another setting or input starts a run" in reason
    assert entry_of(job_in(tmp_path)).why == (), "the settings of the rows that are published again"
    assert entry_of(job_in(tmp_path, factor=3)).status == "stale"
    (tmp_path / "in/b.csv").write_text("n\n5\n")
    assert fresh_receipt(job, describe_run(job, "all")) is None
    assert entry_of(job, inputs=True).status == "stale"
    assert changes_between(undone_of(job, undone), receipt)[0].kind == "undo"
    assert "because" in judge(receipt, (), (), True).sentence


def test_what_an_earlier_undo_took_away_stays_away_after_the_next_one(tmp_path: Path) -> None:
    fingerprints = {}
    for factor in (1, 2, 3):
        job = job_in(tmp_path, factor=factor, keep_publications=5)
        fingerprints[factor] = published(job, [factor])["fingerprint"]
    undo(job)
    receipt = undo(job, to="1")
    assert [record["fingerprint"] for record in receipt["undo"]["undone_before"]] == [fingerprints[3]]
    for factor in (2, 3):
        job = job_in(tmp_path, factor=factor, keep_publications=5)
        assert fresh_receipt(job, describe_run(job, "all")) == receipt
        assert entry_of(job, inputs=True).status == "published"
        assert "only --force" in entry_of(job).why[0]
    receipt = undo(job, to="3")
    assert [record["fingerprint"] for record in receipt["undo"]["undone_before"]] == [fingerprints[2]], (
        "3 is wanted again"
    )
    del receipt["undo"]["undone_before"]
    write_json(job.published.ledger("all") / "receipt.json", receipt)
    assert entry_of(job, inputs=True).status == "published", "the receipt of an earlier version"


def undone_of(job: Job, generation: str) -> dict[str, Any]:
    return Results(job, "job.yaml", job.published).publication("all", generation).receipt


def test_others_learn_of_an_undo_as_of_a_publish(
    prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(job_in(tmp_path), OLD)
    published(job_in(tmp_path, factor=2), NEW)
    notify = [{"webhook": "${OPS_HOOK}", "on": ["published"]}]
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "notify": notify}))
    with webhooks.webhook() as server:
        monkeypatch.setenv("OPS_HOOK", server.url)
        receipt = undo(load_job(path), reason="wrong factor", file=str(path))
    [post] = server.posts
    assert (post["title"], post["rows_out"]) == ("j/all published", len(OLD))
    assert "wrong factor" in post["sentence"]
    assert receipt["generation"] in post["report"]

    def events() -> list[Any]:
        found = ask(prefect_api, "/events/filter", {"filter": {"event": {"name": [PUBLISHED]}}})["events"]
        return [event for event in found if event["payload"]["generation"] == receipt["generation"]]

    [event] = wait_for("the event", events)
    assert (event["resource"]["prefect.resource.id"], event["payload"]["partition"]) == ("overnight.job.j", "all")
    assert "wrong factor" in ask(prefect_api, "/artifacts/j-partitions/latest")["data"]
    assert "P 1 published" in ask(prefect_api, "/artifacts/j-calendar/latest")["data"]


def test_an_undo_starts_no_prefect_server(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    published(job_in(tmp_path), OLD)
    published(job_in(tmp_path, factor=2), NEW)
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}):
        undo(job_in(tmp_path, factor=2))
    assert not list(tmp_path.glob("*server*"))
    assert not (tmp_path / "prefect.db").exists()
    assert capfd.readouterr().err == ""


def test_quarantined_rows_can_be_retried_after_an_undo(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    published(job, OLD)
    published(job_in(tmp_path, factor=2), NEW)
    job = job_in(tmp_path)
    receipt = undo(job)
    retry = plan_retry(job, describe_run(job, "all"))
    assert retry
    assert (retry.receipt["generation"], receipt["rows_quarantined"]) == (receipt["generation"], 1)
    assert Results(job, "job.yaml", job.published).result("all").quarantine()["row_id"].to_pylist() == ["a.csv#3"]
    undone = job_in(tmp_path, factor=2)
    with pytest.raises(RetryRefused, match=r"whole partition with force: `overnight run JOB\.yaml --force`"):
        plan_retry(undone, describe_run(undone, "all"))


def test_clean_keeps_what_an_undo_needs_and_removes_the_excess(tmp_path: Path) -> None:
    job = job_in(tmp_path, keep_publications=2)
    for numbers in (OLD, NEW, [7]):
        published(job, numbers)
    assert collect_garbage(job, keep_receipts=1, dry_run=False)["skipped"] == []
    assert [rows_of(job, f"all@{number}") for number in (1, 2, 3)] == [OLD, NEW, [7]]
    fewer = job_in(tmp_path, keep_publications=1)
    report = collect_garbage(fewer, keep_receipts=1, dry_run=False)
    assert "kept files" in [item["what"] for item in report["removed"]]
    assert undo(fewer)["undo"]["undone"]["generation"]
    assert rows_of(fewer) == NEW
    none = job_in(tmp_path, keep_publications=0)
    collect_garbage(none, dry_run=False)
    assert [file.name for file in (tmp_path / "out/_kept").glob("*")] == []


def test_diff_and_undo_name_publications_by_number_and_generation(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    first = published(job, OLD)["generation"]
    published(job, NEW)
    typed = CliRunner().invoke(main, ["diff", str(tmp_path / "job.yaml"), "all@1", "all@2", "--json"])
    assert json.loads(typed.stdout)["columns"]["x"]["rows_changed"] == 3
    assert rows_of(job, f"all@{first}") == OLD
    with pytest.raises(NoResult, match=r"expected one of the publications of all, 1 \(.*\), 2 \(.*\); found 9"):
        undo(job, to="9")
    with pytest.raises(JobError, match="--to 2: expected an earlier publication of all, found the published one"):
        undo(job, to="2")
    typed = CliRunner().invoke(main, ["undo", str(tmp_path / "job.yaml"), "--to", "1", "--reason", "worse", "--json"])
    receipt = json.loads(typed.stdout)
    assert (receipt["undo"]["generation"], receipt["reason"], rows_of(job)) == (first, "worse", OLD)
    assert (job.published.ledger("all") / "report.html").exists()


def test_a_job_that_keeps_nothing_says_what_to_set(tmp_path: Path) -> None:
    job = job_in(tmp_path, keep_publications=0)
    published(job, OLD)
    with pytest.raises(NoResult, match="found none before the published one"):
        undo(job)
    published(job, NEW)
    with pytest.raises(NotKept, match=r"sink\.keep_publications is how many replaced publications"):
        undo(job)
    assert rows_of(job) == NEW


def test_the_next_run_completes_an_undo_that_died_and_then_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published(job_in(tmp_path), OLD)
    job = job_in(tmp_path, factor=2)
    undone = published(job, NEW)["generation"]
    for step, rows in (("commit", NEW), ("finish", OLD)):
        with monkeypatch.context() as patch:
            patch.setattr(ParquetSink, step, dies)
            with pytest.raises(KeyboardInterrupt):
                undo(job)
        with disable_run_logger(), opened(job, Scope(describe_run(job, "all")), force=False) as run:
            assert rows_of(job) == rows
            if step == "commit":
                assert run.generation == undone, "an undo that was taken back leaves nothing to run"
            else:
                assert run.generation == undone_of(job, run.generation)["generation"] != undone


def dies(*args: Any, **options: Any) -> None:
    raise KeyboardInterrupt


def test_the_command_completes_an_undo_that_died_and_does_not_undo_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path)
    published(job, OLD)
    published(job, NEW)
    with monkeypatch.context() as patch:
        patch.setattr(ParquetSink, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            undo(job)
    undo(job)
    assert rows_of(job) == OLD


@contextlib.contextmanager
def reading(folder: Path) -> Iterator[Counter[tuple[int, ...]]]:
    """List and read the folder again and again, as any reader of Hive folders does. Count what it sees."""
    seen: Counter[tuple[int, ...]] = Counter()
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            try:
                tables = [pq.read_table(file) for file in sorted(folder.glob("*.parquet"))]
            except FileNotFoundError:  # it listed before and lists again
                continue
            seen[tuple(sorted(value for table in tables for value in table["x"].to_pylist()))] += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield seen
    finally:
        over.set()
        reader.join()


def test_a_reader_never_sees_a_mixture_while_publications_are_undone(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    published(job, OLD)
    published(job, NEW)
    with reading(tmp_path / "out") as seen:
        for _ in range(10):
            undo(job)
    assert rows_of(job) == NEW
    assert seen.keys() == {tuple(OLD), tuple(NEW)}


def test_an_undo_of_rows_whose_quarantine_is_gone_is_refused(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    first = published(job, OLD)["generation"]
    published(job, NEW)
    (job.published.ledger("all") / "generations" / first / "quarantine").remove()
    with pytest.raises(NotKept, match="expected the quarantine of the generation"):
        undo(job)
    assert rows_of(job) == NEW
