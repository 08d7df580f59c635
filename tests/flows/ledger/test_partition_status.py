"""What became of each partition, after real runs, cancelled ones, and processes that were killed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.partition_status import STATUSES, PartitionStatus, read_ledger
from overnight.flows.runs.attempt import fresh_receipt, opened
from overnight.flows.runs.run import describe_run
from overnight.tasks.errors import JobError, LedgerCorrupt, OvernightError
from overnight.tasks.state import lease
from overnight.tasks.storage.location import Location
from tests.conftest import WORKER_PATH
from tests.flows.scrape import scraped

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
PUBLISHED, FAILED, SAMPLED = "2026-01-02", "2026-01-03", "2026-01-04"
MODEL = "class Twice:\n    def __call__(self, batch):\n        return {'twice': batch['x'] * 2}\n"
STEP = "def half(batch):\n    return {'half': batch['x'] / 2}\n"
MODEL_FILE, STEP_FILE = WORKER_PATH / "ledger_test_model.py", WORKER_PATH / "ledger_test_step.py"
HOLD = """
import sys, time
from overnight.tasks.state import lease
from overnight.tasks.storage.location import Location
with lease.held(Location(sys.argv[1]), sys.argv[2]):
    print("held", flush=True)
    time.sleep(600)
"""


@dataclass
class Place:
    """A job's own folder, a link to where it is."""

    folder: Path
    original: Path = Path()

    def point_to(self, folder: Path) -> None:
        self.folder.unlink(missing_ok=True)
        self.folder.symlink_to(folder, target_is_directory=True)
        self.original = self.original if self.original.is_absolute() else folder

    @property
    def state(self) -> Path:
        return self.folder / "out/_overnight"

    def ledger(self, partition: str = PUBLISHED) -> Path:
        return self.state / f"date={partition}"

    def inputs(self, partition: str = PUBLISHED) -> Path:
        return self.folder / f"in/date={partition}"

    def settings(self, **changes: Any) -> dict[str, Any]:
        return {
            "name": "numbers",
            "source": {"kind": "parquet", "path": str(self.folder / "in/date={partition}")},
            "preprocess": [
                {"kind": "filter_rows", "expression": "x != 3"},
                {"kind": "python", "target": "ledger_test_step:half"},
            ],
            "inference": [{"kind": "python", "target": "ledger_test_model:Twice"}],
            "sink": {"kind": "parquet", "path": str(self.folder / "out")},
            **changes,
        }

    def job(self, **changes: Any) -> Job:
        return Job.model_validate(self.settings(**changes))

    def run(self, partition: str, changes: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
        from overnight.flows.batch_inference import batch_inference

        path = self.folder / "numbers.yaml"
        path.write_text(yaml.safe_dump(self.settings(**(changes or {}))))
        return batch_inference(partition, job=str(path), **parameters)

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


@pytest.fixture(scope="module")
def ran(prefect_api: str, ray_session: None, tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A job of which one partition is published, one failed, and of one there is a sample."""
    MODEL_FILE.write_text(MODEL)
    STEP_FILE.write_text(STEP)
    place = Place(tmp_path_factory.mktemp("ledger") / "current")
    place.point_to(tmp_path_factory.mktemp("original"))
    for partition in (PUBLISHED, SAMPLED):
        place.inputs(partition).mkdir(parents=True)
        for name in ("a", "b"):
            pq.write_table(pa.table({"x": range(5)}), place.inputs(partition) / f"{name}.parquet")
    place.run(PUBLISHED)
    with pytest.raises(OvernightError):
        place.run(FAILED)
    place.run(SAMPLED, limit_rows=2)
    return place


@pytest.fixture
def place(ran: Place, tmp_path: Path) -> Place:
    """A copy of it to change, under the same path: another would be another setting."""
    shutil.copytree(ran.original, tmp_path / "job", symlinks=True)
    ran.point_to(tmp_path / "job")
    return ran


@pytest.fixture
def killed_holder() -> Iterator[Any]:
    """Takes a partition in a process of its own, which is then killed."""

    def hold(ledger: Path, owner: str) -> None:
        command = [sys.executable, "-c", HOLD, str(ledger), owner]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        process.kill()
        process.wait()

    return hold


def edit(path: Path, **changes: Any) -> dict[str, Any]:
    content = json.loads(path.read_text()) | changes
    path.write_text(json.dumps(content))
    return dict(content)


def newest_lease(ledger: Path) -> Path:
    return max((ledger / "lease").iterdir())


def test_published_failed_and_missing_partitions_are_told_apart_and_samples_do_not_count(place: Place) -> None:
    entries = place.entries()
    assert {partition: entry.status for partition, entry in entries.items()} == {
        PUBLISHED: "published",
        FAILED: "failed",
        SAMPLED: "missing",
    }
    assert entries[PUBLISHED].receipt == json.loads((place.ledger() / "receipt.json").read_text())
    assert (entries[PUBLISHED].why, entries[SAMPLED].why) == ((), ())
    [why] = entries[FAILED].why
    assert why.startswith("ingest: source.path: expected a directory")
    assert entries[FAILED].since == json.loads((place.ledger(FAILED) / "failure.json").read_text())["failed_at"]


def test_as_json_it_has_the_counts_of_the_receipt_and_the_failure(place: Place) -> None:
    entries = place.entries()
    published, failed = entries[PUBLISHED].as_json(), entries[FAILED].as_json()
    assert {name: published[name] for name in ("status", "rows_in", "rows_out", "rows_filtered", "stage")} == {
        "status": "published", "rows_in": 10, "rows_out": 8, "rows_filtered": 2, "stage": None,
    }  # fmt: skip
    assert published["published_at"] == json.loads((place.ledger() / "receipt.json").read_text())["finished_at"]
    assert (failed["stage"], failed["error_type"], failed["rows_out"]) == ("ingest", "InputError", None)


def test_a_scrape_has_the_status_the_counts_and_what_is_late_of_each_partition(place: Place) -> None:
    job_file, broken = place.folder / "numbers.yaml", place.folder / "broken.yaml"
    schedule = {"cron": "0 2 * * *", "deadline": "06:00"}
    job_file.write_text(yaml.safe_dump(place.settings(schedule=schedule)))
    broken.write_text("name: broken")
    found = scraped(job_file, broken)
    for entry in read_ledger(load_job(job_file), date(2026, 1, 2), date(2026, 1, 4)):
        labels = {"job": "numbers", "partition": entry.partition}
        status = {known: found.value("overnight_partition_status", **labels, status=known) for known in STATUSES}
        assert status == {known: known == entry.status for known in STATUSES}
        assert found.value("overnight_partition_late", **labels) == (entry.receipt is None)
        for name in ("rows_in", "rows_out", "rows_quarantined"):
            assert found.value(f"overnight_partition_{name}", **labels) == entry.as_json()[name]
    receipt = json.loads((place.ledger() / "receipt.json").read_text())
    at = found.value("overnight_partition_published_timestamp_seconds", job="numbers", partition=PUBLISHED)
    assert at == datetime.fromisoformat(receipt["finished_at"]).timestamp()
    readable = [found.value("overnight_job_readable", file=str(path)) for path in (job_file, broken)]
    assert readable == [1, 0]


def test_a_failure_after_a_publish_counts_until_a_run_succeeds(place: Place) -> None:
    with pytest.raises(OvernightError, match="min_rows"):
        place.run(PUBLISHED, {"checks": {"min_rows": 1000}}, force=True)
    entry = place.entry()
    assert entry.status == "failed"
    assert "min_rows" in entry.why[0]
    assert entry.receipt
    assert entry.begun
    place.run(PUBLISHED)
    assert place.entry().status == "published"


def test_a_first_attempt_that_was_cancelled_leaves_it_missing_and_a_cancelled_rerun_stale(place: Place) -> None:
    job = place.job()
    for partition, force in ((SAMPLED, False), (PUBLISHED, True)):
        with pytest.raises(KeyboardInterrupt), opened(job, describe_run(job, partition), force):
            raise KeyboardInterrupt
    entries = place.entries()
    assert (entries[SAMPLED].status, entries[SAMPLED].begun) == ("missing", True)
    assert "abandoned" in entries[SAMPLED].why[0]
    assert (entries[PUBLISHED].status, entries[PUBLISHED].begun) == ("stale", True)
    assert "abandoned" in entries[PUBLISHED].why[0]


def test_what_a_run_holds_is_running_whatever_it_was_before(place: Place) -> None:
    job = place.job()
    for partition in (PUBLISHED, FAILED, SAMPLED):
        run = describe_run(job, partition)
        with opened(job, run, True):
            entry = place.entry(partition)
            assert entry.status == "running", partition
            assert run.attempt in entry.why[0]
            assert entry.since
            assert entry.since[:19] <= datetime.now(UTC).isoformat()[:19]
            assert place.entry(partition, shuffle={"kind": "files"}).status == "running"
        assert place.entry(partition).status != "running"


@pytest.mark.parametrize(("silent_seconds", "status"), [(0, "running"), (20, "running"), (300, "failed")])
def test_a_holder_on_another_host_is_judged_by_the_clock(place: Place, silent_seconds: int, status: str) -> None:
    job = place.job()
    with opened(job, describe_run(job, SAMPLED), False):
        held = newest_lease(place.ledger(SAMPLED)).read_bytes()
    renewed = datetime.now(UTC) - timedelta(seconds=silent_seconds)
    newest_lease(place.ledger(SAMPLED)).write_bytes(held)
    edit(newest_lease(place.ledger(SAMPLED)), host="elsewhere", renewed=int(renewed.timestamp() * 1e9))
    entry = place.entry(SAMPLED)
    assert entry.status == status
    assert "elsewhere" in entry.why[0]
    if status == "failed":
        assert entry.since
        assert abs(datetime.fromisoformat(entry.since) - renewed) < timedelta(seconds=2)


@pytest.mark.parametrize("partition", [PUBLISHED, FAILED, SAMPLED])
def test_an_attempt_whose_process_was_killed_is_failed(place: Place, killed_holder: Any, partition: str) -> None:
    attempt = describe_run(place.job(), partition).attempt
    killed_holder(place.ledger(partition), attempt)
    entry = place.entry(partition)
    assert entry.status == "failed"
    assert f"attempt {attempt} died" in entry.why[0]
    assert (entry.receipt is not None, entry.failure) == (partition == PUBLISHED, None)


def test_a_failure_that_the_attempt_recorded_before_its_process_died_is_told(place: Place, killed_holder: Any) -> None:
    attempt = json.loads((place.ledger(FAILED) / "failure.json").read_text())["attempt"]
    killed_holder(place.ledger(FAILED), attempt)
    assert place.entry(FAILED).why[0].startswith("ingest:")


def test_a_process_that_died_after_its_publish_has_published(place: Place, killed_holder: Any, tmp_path: Path) -> None:
    token = json.loads((place.ledger() / "receipt.json").read_text())["token"]
    killed_holder(tmp_path / "elsewhere", "20260102T020000-abcdef")
    own = place.ledger() / "lease" / f"{token:08d}"
    assert own == newest_lease(place.ledger())
    own.write_bytes(newest_lease(tmp_path / "elsewhere").read_bytes())
    assert lease.read_holder(token, own.read_bytes())
    assert place.entry().status == "published"


def test_a_publish_that_was_cut_off_is_failed_and_the_next_run_completes_it(place: Place) -> None:
    receipt = json.loads((place.ledger() / "receipt.json").read_text())
    publishing = {name: receipt[name] for name in ("generation", "attempt")} | {"receipt": receipt, "old": []}
    (place.ledger() / "publishing.json").write_text(json.dumps(publishing))
    entry = place.entry()
    assert (entry.status, entry.receipt) == ("failed", receipt)
    assert "publishing was interrupted" in entry.why[0]
    place.run(PUBLISHED)
    assert place.entry().status == "published"


def test_cleaning_is_no_run(place: Place, killed_holder: Any) -> None:
    with lease.held(Location(str(place.ledger())), "clean-20260105T000000-abcdef"):
        assert place.entry().status == "published"
    killed_holder(place.ledger(), "clean-20260105T000000-abcdef")
    assert place.entry().status == "published"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"shuffle": {"kind": "files", "seed": 3}}, "shuffle.kind: none -> files, shuffle.seed: not set -> 3"),
        ({"preprocess": []}, "preprocess: filter_rows + python -> none"),
        ({"sink": {"kind": "parquet", "path": "out", "keep_columns": ["x"]}}, 'sink.keep_columns: not set -> ["x"]'),
        (
            {"inference": [{"kind": "python", "target": "ledger_test_model:Twice", "kwargs": {"n": 1}}]},
            "inference.python.kwargs: not set",
        ),
        (
            {"preprocess": [{"kind": "filter_rows", "expression": "x != 4"}, {"kind": "python", "target": "a:b"}]},
            "preprocess.filter_rows.expression: x != 3 -> x != 4",
        ),
    ],
)
def test_other_settings_make_it_stale_and_are_named(place: Place, changes: dict[str, Any], why: str) -> None:
    if "sink" in changes:
        changes["sink"]["path"] = str(place.folder / "out")
    (WORKER_PATH / "a.py").write_text("def b(batch):\n    return batch\n")
    entry = place.entry(**changes)
    assert entry.status == "stale"
    assert f"settings changed: {why}" in entry.why[0]
    assert entry.receipt


def test_a_long_value_is_shown_where_it_changed(place: Place) -> None:
    expression = " and ".join(f"x != {number}" for number in range(100, 160))
    steps = [{"kind": "filter_rows", "expression": expression}]
    job = place.job(preprocess=steps)
    run = describe_run(job, PUBLISHED)
    edit(place.ledger() / "receipt.json", ingredients=run.ingredients, fingerprint=run.fingerprint)
    assert place.entry(preprocess=steps).status == "published"
    [why] = place.entry(preprocess=[{**steps[0], "expression": expression.replace("x != 150", "x == 150")}]).why
    assert "!= 150" in why.split(" -> ")[0]
    assert "== 150" in why.split(" -> ")[1]
    assert len(why) < 250


def test_what_changes_no_result_changes_no_status(place: Place) -> None:
    receipt = json.loads((place.ledger() / "receipt.json").read_text())
    edit(place.ledger() / "receipt.json", versions=receipt["versions"] | {"commit": "another"})
    models = [{"kind": "python", "target": "ledger_test_model:Twice", "batch_size": 3}]
    assert place.entry(inference=models, retries={"attempts": 7}, checks={"min_rows": 999}).status == "published"


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (MODEL_FILE, "files of inference.python changed: ledger_test_model.py"),
        (STEP_FILE, "files of preprocess.python changed: ledger_test_step.py"),
    ],
)
def test_code_that_changed_makes_it_stale(place: Place, file: Path, why: str) -> None:
    before = file.read_text()
    try:
        file.write_text(f"{before}# changed\n")
        entry = place.entry()
    finally:
        file.write_text(before)
    assert (entry.status, entry.why) == ("stale", (why,))
    assert place.entry().status == "published"


def test_model_files_that_changed_make_it_stale(place: Place) -> None:
    model = place.folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    models = [{"kind": "text_embedding", "model": str(model), "text_column": "x"}]
    run = describe_run(place.job(inference=models), PUBLISHED)
    edit(place.ledger() / "receipt.json", ingredients=run.ingredients, fingerprint=run.fingerprint)
    assert place.entry(inference=models).status == "published"
    (model / "model.safetensors").write_bytes(b"trained longer")
    (model / "tokenizer.json").write_text("{}")
    entry = place.entry(inference=models)
    assert (entry.status, entry.why) == (
        "stale",
        ("files of inference.text_embedding changed: model.safetensors, tokenizer.json",),
    )


def test_another_format_version_makes_it_stale(place: Place) -> None:
    receipt = json.loads((place.ledger() / "receipt.json").read_text())
    before = receipt["ingredients"] | {"format_version": 0}
    edit(place.ledger() / "receipt.json", ingredients=before, fingerprint="before")
    assert (place.entry().status, place.entry().why) == ("stale", ("format version changed: 0 -> 1",))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda folder: shutil.copy(folder / "a.parquet", folder / "c.parquet"), "inputs changed: 1 new (c.parquet)"),
        (lambda folder: (folder / "a.parquet").unlink(), "inputs changed: 1 gone (a.parquet)"),
        (
            lambda folder: pq.write_table(pa.table({"x": [1, 2, 3]}), folder / "b.parquet"),
            "inputs changed: 1 changed (b.parquet)",
        ),
        (
            lambda folder: (folder / "a.parquet").rename(folder / "d.parquet"),
            "inputs changed: 1 new (d.parquet), 1 gone (a.parquet)",
        ),
        (shutil.rmtree, "inputs: source.path: expected a directory"),
    ],
)
def test_inputs_that_changed_make_it_stale_when_they_are_looked_at(place: Place, change: Any, why: str) -> None:
    change(place.inputs())
    assert place.entry().status == "published"
    told: list[tuple[int, int]] = []
    entry = look(place.job(), inputs=True, tell=lambda *counts: told.append(counts))[PUBLISHED]
    assert entry.status == "stale"
    assert entry.why[0].startswith(why)
    assert told == [(0, 1), (1, 1)]


def test_settings_and_inputs_that_changed_are_both_told(place: Place) -> None:
    (place.inputs() / "a.parquet").unlink()
    entry = look(place.job(shuffle={"kind": "rows"}), inputs=True)[PUBLISHED]
    assert [why.split(":")[0] for why in entry.why] == ["settings changed", "inputs changed"]


def test_days_that_the_schedule_leaves_out_are_there_only_if_they_were_run(place: Place) -> None:
    """2026-01-02 is a Friday."""
    weekdays = {"cron": "0 2 * * 1-5", "offset_days": 0}
    later = datetime(2026, 1, 12, 12, tzinfo=UTC)
    days = [entry.partition for entry in read_ledger(place.job(schedule=weekdays), now=later)]
    assert days == [
        *("2026-01-02", "2026-01-03"),
        *("2026-01-05", "2026-01-06", "2026-01-07", "2026-01-08", "2026-01-09", "2026-01-12"),
    ]


def test_a_range_has_its_days_and_a_leap_day_among_them(place: Place) -> None:
    entries = read_ledger(place.job(), date(2024, 2, 28), date(2024, 3, 1), now=NOW)
    assert [entry.partition for entry in entries] == ["2024-02-28", "2024-02-29", "2024-03-01"]
    assert [entry.status for entry in read_ledger(place.job(), end=date(2026, 1, 2), now=NOW)] == ["published"]
    assert [entry.status for entry in read_ledger(place.job(), date(2026, 1, 3), now=NOW)] == ["failed", "missing"]
    assert [entry.partition for entry in read_ledger(place.job(), newest=2, now=NOW)] == [FAILED, SAMPLED]
    with pytest.raises(JobError, match="not before the start, found 2026-01-03 to 2026-01-02"):
        read_ledger(place.job(), date(2026, 1, 3), date(2026, 1, 2))


def test_days_after_the_last_that_is_due_are_not_missing_and_are_there_if_they_were_run(place: Place) -> None:
    shutil.copytree(place.ledger(FAILED), place.ledger("2030-01-01"))
    days = [entry.partition for entry in read_ledger(place.job(), now=NOW)]
    assert days == [PUBLISHED, FAILED, SAMPLED, "2030-01-01"]


def test_a_job_without_days_has_one_partition(place: Place) -> None:
    undated = {"source": {"kind": "parquet", "path": str(place.inputs())}}
    undated["sink"] = {"kind": "parquet", "path": str(place.folder / "all")}
    assert {partition: entry.status for partition, entry in place.entries(**undated).items()} == {"all": "missing"}
    place.run("", undated)
    assert {partition: entry.status for partition, entry in place.entries(**undated).items()} == {"all": "published"}
    with pytest.raises(JobError, match="expected no start or end"):
        read_ledger(place.job(**undated), date(2026, 1, 1))


def test_a_ledger_that_is_kept_elsewhere_is_found_there(place: Place) -> None:
    place.state.rename(place.folder / "elsewhere")
    assert place.entry(state=str(place.folder / "elsewhere")).status == "published"
    assert {entry.status for entry in place.entries().values()} == {"missing"}


def test_another_job_in_the_place_is_named_and_its_record_is_not_this_one_s(place: Place) -> None:
    entries = place.entries(name="other")
    assert (entries[PUBLISHED].status, entries[PUBLISHED].receipt) == ("missing", None)
    assert "the sink holds results of the job numbers" in entries[PUBLISHED].why[0]
    assert (entries[FAILED].status, entries[FAILED].failure) == ("missing", None)
    with pytest.raises(OvernightError, match="published by the job 'numbers'"):
        place.run(PUBLISHED, {"name": "other"})
    assert place.entry(name="other").status == "missing"  # nothing was begun, so there is nothing to record


@pytest.mark.parametrize("content", ['{"job": "numb', "[]", ""])
def test_a_receipt_that_cannot_be_read_is_named(place: Place, content: str) -> None:
    (place.ledger() / "receipt.json").write_text(content)
    with pytest.raises(LedgerCorrupt, match=r"date=2026-01-02/receipt\.json: expected a JSON object, found"):
        read_ledger(place.job(), now=NOW)
    with pytest.raises(LedgerCorrupt, match=r"date=2026-01-02/receipt\.json"):
        place.run(PUBLISHED)


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
