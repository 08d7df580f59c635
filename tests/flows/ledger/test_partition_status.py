"""What became of each partition: published, failed, cancelled, held by a run, killed, stale, or missing."""

import json
import shutil
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import STATUSES, PartitionStatus, read_ledger
from overnight.flows.runs.attempt import Scope, fresh_receipt, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import CheckFailed, InputError, JobError, LedgerCorrupt, OvernightError
from overnight.tasks.state import lease
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.flows.conftest import RunJob
from tests.flows.ledger.published import leave_lease, publish
from tests.flows.scrape import scraped

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
PUBLISHED, FAILED, SAMPLED = DAYS = ("2026-01-02", "2026-01-03", "2026-01-04")
MODEL, STEP = "ledger_test_model", "ledger_test_step"  # modules in the working directory


@dataclass
class Place:
    """A job of which one partition is published, one failed, and of one there is a sample."""

    folder: Path

    def ledger(self, partition: str = PUBLISHED) -> Path:
        return self.folder / f"out/_overnight/date={partition}"

    def receipt(self) -> dict[str, Any]:
        return dict(json.loads((self.ledger() / "receipt.json").read_text()))

    def settings(self, **changes: Any) -> dict[str, Any]:
        steps = [{"kind": "filter_rows", "expression": "id != 3"}, {"kind": "python", "target": f"{STEP}:half"}]
        model = {"kind": "python", "target": f"{MODEL}:Twice"}
        return jobs.job(self.folder, **{"name": "numbers", "preprocess": steps, "inference": [model], **changes})

    def job(self, **changes: Any) -> Job:
        return Job.model_validate(self.settings(**changes))

    def entries(self, **changes: Any) -> dict[str, PartitionStatus]:
        return look(self.job(**changes))

    def entry(self, partition: str = PUBLISHED, **changes: Any) -> PartitionStatus:
        return self.entries(**changes)[partition]


def look(job: Job, **options: Any) -> dict[str, PartitionStatus]:
    """The entries by partition; what is published among them is what `overnight run` leaves as it is."""
    for entry in read_ledger(job, now=NOW, inputs=True):
        if entry.status == "published":
            assert fresh_receipt(job, describe_run(job, entry.partition)) == entry.receipt, entry
    return {entry.partition: entry for entry in read_ledger(job, now=NOW, **options)}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.chdir(tmp_path)
    Path(f"{MODEL}.py").write_text("class Twice:\n    def __call__(self, batch):\n        return batch\n")
    Path(f"{STEP}.py").write_text("def half(batch):\n    return batch\n")
    jobs.write_days(tmp_path, [PUBLISHED, SAMPLED])
    shutil.copy(f"in/{PUBLISHED}/a.jsonl", f"in/{PUBLISHED}/b.jsonl")
    place = Place(tmp_path)
    job = place.job()
    publish(job, PUBLISHED)
    with pytest.raises(InputError), opened(job, Scope(describe_run(job, FAILED)), False):
        raise InputError("source.path: expected a directory")
    with opened(job, Scope(describe_run(job, SAMPLED, limit_rows=2)), False):
        pass
    return place


def edit(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def test_published_failed_and_missing_partitions_are_told_apart_and_samples_do_not_count(place: Place) -> None:
    entries = place.entries()
    assert [entries[day].status for day in DAYS] == ["published", "failed", "missing"]
    assert (entries[PUBLISHED].why, entries[SAMPLED].why) == ((), ())
    assert entries[PUBLISHED].receipt == place.receipt()
    assert entries[FAILED].why == ("ingest: source.path: expected a directory",)
    assert entries[FAILED].since == json.loads((place.ledger(FAILED) / "failure.json").read_text())["failed_at"]
    published, failed = entries[PUBLISHED].as_json(), entries[FAILED].as_json()
    counts = ("status", "rows_in", "rows_out", "rows_filtered", "stage", "published_at")
    assert [published[name] for name in counts] == ["published", 10, 8, 2, None, "2026-01-03T00:00:00.000Z"]
    assert (failed["stage"], failed["error_type"], failed["rows_out"]) == ("ingest", "InputError", None)


def test_a_scrape_has_the_status_the_counts_and_what_is_late_of_each_partition(place: Place, prefect_api: str) -> None:
    settings = place.settings(schedule={"cron": "0 2 * * *", "deadline": "06:00"})
    job_file = jobs.write_job(place.folder / "numbers.yaml", settings)
    broken = jobs.write_job(place.folder / "broken.yaml", {"name": "broken"})
    found = scraped(job_file, broken)
    for entry in read_ledger(load_job(job_file), date(2026, 1, 2), date(2026, 1, 4)):
        labels = {"job": "numbers", "partition": entry.partition}
        status = {known: found.value("overnight_partition_status", **labels, status=known) for known in STATUSES}
        assert status == {known: known == entry.status for known in STATUSES}
        assert found.value("overnight_partition_late", **labels) == (entry.receipt is None)
        for name in ("rows_in", "rows_out", "rows_quarantined"):
            assert found.value(f"overnight_partition_{name}", **labels) == entry.as_json()[name]
    at = found.value("overnight_partition_published_timestamp_seconds", job="numbers", partition=PUBLISHED)
    assert at == datetime(2026, 1, 3, tzinfo=UTC).timestamp()
    assert [found.value("overnight_job_readable", file=str(path)) for path in (job_file, broken)] == [1, 0]


def test_a_first_attempt_that_was_cancelled_leaves_it_missing_and_a_cancelled_rerun_stale(place: Place) -> None:
    job = place.job()
    for partition, force in ((SAMPLED, False), (PUBLISHED, True)):
        with pytest.raises(KeyboardInterrupt), opened(job, Scope(describe_run(job, partition)), force):
            raise KeyboardInterrupt
    for partition, status in ((SAMPLED, "missing"), (PUBLISHED, "stale")):
        entry = place.entry(partition)
        assert (entry.status, entry.begun) == (status, True)
        assert "abandoned" in entry.why[0]


def test_what_a_run_holds_is_running_whatever_it_was_before(place: Place) -> None:
    job = place.job()
    for partition in DAYS:
        run = describe_run(job, partition)
        with opened(job, Scope(run), True):
            entry = place.entry(partition)
            assert entry.status == "running", partition
            assert run.attempt in entry.why[0]
            assert entry.since
            assert entry.since[:19] <= datetime.now(UTC).isoformat()[:19]
            assert place.entry(partition, shuffle={"kind": "files"}).status == "running"
        assert place.entry(partition).status != "running"


@pytest.mark.parametrize(("silent_seconds", "status"), [(0, "running"), (20, "running"), (300, "failed")])
def test_a_holder_on_another_host_is_judged_by_the_clock(place: Place, silent_seconds: int, status: str) -> None:
    renewed = datetime.now(UTC) - timedelta(seconds=silent_seconds)
    leave_lease(place.ledger(SAMPLED), "a", host="elsewhere", renewed=int(renewed.timestamp() * 1e9))
    entry = place.entry(SAMPLED)
    assert entry.status == status
    assert "elsewhere" in entry.why[0]
    if status == "failed":
        assert entry.since
        assert abs(datetime.fromisoformat(entry.since) - renewed) < timedelta(seconds=2)


@pytest.mark.parametrize("partition", DAYS)
def test_an_attempt_whose_process_was_killed_is_failed(place: Place, partition: str) -> None:
    attempt = "29991231T000000-000001"  # the failed one may have begun in this second
    leave_lease(place.ledger(partition), attempt)
    entry = place.entry(partition)
    assert entry.status == "failed"
    assert f"attempt {attempt} died" in entry.why[0]
    assert (entry.receipt is not None, entry.failure) == (partition == PUBLISHED, None)


def test_of_a_process_that_died_its_failure_or_its_publish_counts_and_cleaning_is_no_run(place: Place) -> None:
    attempt = json.loads((place.ledger(FAILED) / "failure.json").read_text())["attempt"]
    leave_lease(place.ledger(FAILED), attempt)
    assert place.entry(FAILED).why[0].startswith("ingest:")
    with lease.held(Location(str(place.ledger())), "clean-20260105T000000-abcdef"):
        assert place.entry().status == "published"
    left = leave_lease(place.ledger(), "clean-20260105T000000-abcdef")
    assert place.entry().status == "published"
    edit(left, owner="20260102T020000-abcdef")
    edit(place.ledger() / "receipt.json", token=int(left.name))
    assert place.entry().status == "published"
    edit(place.ledger() / "receipt.json", token=int(left.name) - 1)
    assert place.entry().status == "failed"


OTHER_STEPS = [{"kind": "filter_rows", "expression": "id != 4"}, {"kind": "python", "target": f"{STEP}:other"}]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shuffle": {"kind": "files", "seed": 3}}, "shuffle.kind: none -> files, shuffle.seed: not set -> 3"),
        ({"preprocess": []}, "preprocess: filter_rows + python -> none"),
        ({"preprocess": OTHER_STEPS}, "preprocess.filter_rows.expression: id != 3 -> id != 4"),
        ({"sink": {"kind": "parquet", "path": "out", "keep_columns": ["x"]}}, 'sink.keep_columns: not set -> ["x"]'),
        (
            {"inference": [{"kind": "python", "target": f"{MODEL}:Twice", "kwargs": {"n": 1}}]},
            "inference.python.kwargs: not set",
        ),
    ],
)
def test_other_settings_make_it_stale_and_are_named(place: Place, changes: dict[str, Any], why: str) -> None:
    if "sink" in changes:
        changes["sink"]["path"] = str(place.folder / "out")
    entry = place.entry(**changes)
    assert (entry.status, entry.receipt) == ("stale", place.receipt())
    assert f"settings changed: {why}" in entry.why[0]


def test_a_long_value_is_shown_where_it_changed(place: Place) -> None:
    expression = " and ".join(f"id != {number}" for number in range(100, 160))
    steps = [{"kind": "filter_rows", "expression": expression}]
    publish(place.job(preprocess=steps), PUBLISHED)
    assert place.entry(preprocess=steps).status == "published"
    [why] = place.entry(preprocess=[{**steps[0], "expression": expression.replace("id != 150", "id == 150")}]).why
    before, after = why.split(" -> ")
    assert "!= 150" in before
    assert "== 150" in after
    assert len(why) < 250


def test_what_changes_no_result_changes_no_status(place: Place) -> None:
    edit(place.ledger() / "receipt.json", versions={"commit": "another"})
    models = [{"kind": "python", "target": f"{MODEL}:Twice", "batch_size": 3}]
    assert place.entry(inference=models, retries={"attempts": 7}, checks={"min_rows": 999}).status == "published"


def test_code_and_model_files_that_changed_make_it_stale_and_are_named(place: Place) -> None:
    for module, leaf in ((MODEL, "inference.python"), (STEP, "preprocess.python")):
        file = place.folder / f"{module}.py"
        before = file.read_text()
        file.write_text(f"{before}# changed\n")
        assert (place.entry().status, place.entry().why) == ("stale", (f"files of {leaf} changed: {module}.py",))
        file.write_text(before)
        assert place.entry().status == "published"
    model = place.folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    models = [{"kind": "text_embedding", "model": str(model), "text_column": "x"}]
    publish(place.job(inference=models), PUBLISHED)
    (model / "model.safetensors").write_bytes(b"trained longer")
    (model / "tokenizer.json").write_text("{}")
    why = "files of inference.text_embedding changed: model.safetensors, tokenizer.json"
    assert place.entry(inference=models).why == (why,)


def test_another_format_version_makes_it_stale(place: Place) -> None:
    before = place.receipt()["ingredients"] | {"format_version": 0}
    edit(place.ledger() / "receipt.json", ingredients=before, fingerprint="before")
    assert (place.entry().status, place.entry().why) == ("stale", ("format version changed: 0 -> 1",))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: shutil.copy(folder / "a.jsonl", folder / "c.jsonl"), "inputs changed: 1 new (c.jsonl)"),
        (lambda folder: (folder / "a.jsonl").unlink(), "inputs changed: 1 gone (a.jsonl)"),
        (lambda folder: (folder / "b.jsonl").write_text('{"id": 4}\n'), "inputs changed: 1 changed (b.jsonl)"),
        (
            lambda folder: (folder / "a.jsonl").rename(folder / "d.jsonl"),
            "inputs changed: 1 new (d.jsonl), 1 gone (a.jsonl)",
        ),
        (shutil.rmtree, "inputs: source.path: expected a directory"),
    ],
)
def test_inputs_that_changed_make_it_stale_when_they_are_looked_at(place: Place, change: Any, why: str) -> None:
    change(place.folder / "in" / PUBLISHED)
    assert place.entry().status == "published"
    told: list[tuple[int, int]] = []
    entry = look(place.job(), inputs=True, tell=lambda *counts: told.append(counts))[PUBLISHED]
    assert entry.status == "stale"
    assert entry.why[0].startswith(why)
    assert told == [(0, 1), (1, 1)]
    both = look(place.job(shuffle={"kind": "rows"}), inputs=True)[PUBLISHED].why
    assert [words.split(":")[0] for words in both] == ["settings changed", why.partition(":")[0]]


def test_a_range_has_its_days_and_those_that_no_schedule_takes_only_if_they_were_run(place: Place) -> None:
    """2026-01-02 is a Friday."""

    def days(*options: Any, now: datetime = NOW, **more: Any) -> list[str]:
        return [entry.partition[5:] for entry in read_ledger(place.job(**more), *options, now=now)]

    assert days(date(2024, 2, 28), date(2024, 3, 1)) == ["02-28", "02-29", "03-01"]
    assert days(None, date(2026, 1, 2)) == ["01-02"]
    assert days(date(2026, 1, 3)) == ["01-03", "01-04"]
    assert [entry.partition for entry in read_ledger(place.job(), newest=2, now=NOW)] == [FAILED, SAMPLED]
    weekdays = {"cron": "0 2 * * 1-5", "offset_days": 0}
    assert days(now=NOW + timedelta(days=2), schedule=weekdays) == ["01-02", "01-03", "01-05", "01-06", "01-07"]
    shutil.copytree(place.ledger(FAILED), place.ledger("2030-01-01"))  # a day to come that was run
    assert days() == ["01-02", "01-03", "01-04", "01-01"]
    with pytest.raises(JobError, match="2026-01-03 to 2026-01-02"):
        read_ledger(place.job(), date(2026, 1, 3), date(2026, 1, 2))


def test_a_job_without_days_has_one_partition(place: Place) -> None:
    undated = place.job(
        source={"kind": "jsonl", "path": str(place.folder / "in" / PUBLISHED)},
        sink={"kind": "parquet", "path": str(place.folder / "all")},
    )
    assert {partition: entry.status for partition, entry in look(undated).items()} == {"all": "missing"}
    publish(undated, "all")
    assert {partition: entry.status for partition, entry in look(undated).items()} == {"all": "published"}
    with pytest.raises(JobError, match="no start or end"):
        read_ledger(undated, date(2026, 1, 1))


def test_a_ledger_that_is_kept_elsewhere_is_found_there(place: Place) -> None:
    (place.folder / "out/_overnight").rename(place.folder / "elsewhere")
    assert place.entry(state=str(place.folder / "elsewhere")).status == "published"
    assert {entry.status for entry in place.entries().values()} == {"missing"}


def test_another_job_in_the_place_is_named_and_its_record_is_not_this_one_s(place: Place) -> None:
    entries = place.entries(name="other")
    assert (entries[PUBLISHED].status, entries[PUBLISHED].receipt) == ("missing", None)
    assert "the sink holds results of the job numbers" in entries[PUBLISHED].why[0]
    assert (entries[FAILED].status, entries[FAILED].failure) == ("missing", None)


@pytest.mark.parametrize("content", ['{"job": "numb', "[]", ""])
def test_a_receipt_that_cannot_be_read_is_named(place: Place, content: str) -> None:
    (place.ledger() / "receipt.json").write_text(content)
    with pytest.raises(LedgerCorrupt, match=r"date=2026-01-02/receipt\.json"):
        read_ledger(place.job(), now=NOW)


def test_many_partitions_read_together_are_what_each_is_by_itself(place: Place) -> None:
    first = date(2025, 6, 1)
    for number in range(120):
        source = place.ledger(FAILED if number % 3 else PUBLISHED)
        shutil.copytree(source, place.ledger((first + timedelta(number)).isoformat()))
    together = read_ledger(place.job(), now=NOW)
    assert len(together) == (date(2026, 1, 4) - first).days + 1
    for entry in [*together[:4], *together[118:124], *together[-3:]]:
        day = date.fromisoformat(entry.partition)
        assert read_ledger(place.job(), day, day) == [entry]


@pytest.mark.slow
def test_what_failed_after_a_publish_or_was_cut_off_in_it_is_failed_until_a_run_completes_it(
    run_job: RunJob, tmp_path: Path
) -> None:
    def entry(**changes: Any) -> PartitionStatus:
        return look(jobs.load(tmp_path, **changes))[PUBLISHED]

    jobs.write_days(tmp_path, [PUBLISHED])
    job, ledger = jobs.job(tmp_path), Place(tmp_path).ledger()
    run_job(job, PUBLISHED)
    with pytest.raises(CheckFailed):
        run_job({**job, "checks": {"min_rows": 1000}}, PUBLISHED, force=True)
    failed = entry()
    assert (failed.status, failed.receipt is not None, failed.begun) == ("failed", True, True)
    assert "min_rows" in failed.why[0]
    receipt = run_job(job, PUBLISHED)
    assert entry().status == "published"
    publishing = {name: receipt[name] for name in ("generation", "attempt")} | {"receipt": receipt, "old": []}
    (ledger / "publishing.json").write_text(json.dumps(publishing))
    assert (entry().status, entry().receipt) == ("failed", receipt)
    assert "publishing was interrupted" in entry().why[0]
    run_job(job, PUBLISHED)
    assert entry().status == "published"
    with pytest.raises(OvernightError, match="published by the job 'small'"):
        run_job({**job, "name": "other"}, PUBLISHED)
    assert entry(name="other").status == "missing"  # nothing was begun, so there is nothing to record
    (ledger / "receipt.json").write_text("[]")
    with pytest.raises(LedgerCorrupt):
        run_job(job, PUBLISHED)
