"""`overnight clean`: what goes, what stays, on a disk and on S3, and that runs go on as if it had not been there."""

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.garbage_collection import collect_garbage
from overnight.flows.runs.run import describe_run, refuse_foreign_files
from overnight.tasks.errors import CheckFailed
from overnight.tasks.state import lease
from overnight.tasks.state.garbage import list_sizes, removable
from overnight.tasks.state.run import Run, read_json, unfinished_generation, write_json
from overnight.tasks.storage.location import Location
from tests import jobs
from tests.flows.conftest import Overnight, RunJob

DAY = "2026-01-02"


@pytest.fixture(params=["disk"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """Where the job publishes: a folder, or a bucket for a test with `on_both`."""
    if request.param == "disk":
        return Location(str(tmp_path / "out"))
    client: Any = request.getfixturevalue("s3")
    bucket = f"clean-{uuid.uuid4().hex[:8]}"
    client.create_bucket(Bucket=bucket)
    return Location(f"s3://{bucket}/out")


on_both = pytest.mark.parametrize("place", ["disk", "s3"], indirect=True)


@pytest.fixture
def job(place: Location, tmp_path: Path) -> Job:
    sink = {"kind": "parquet", "path": place.template}
    return load_job(jobs.write_job(tmp_path / "job.yaml", name="cleaned", sink=sink))


def generation(run: Run, days_ago: int, fingerprint: str = "", published: bool = False, files: tuple = ()) -> str:
    """A generation as its attempts leave it; of a published one the receipt is the partition's. Its name."""
    moment = datetime.now(UTC) - timedelta(days_ago)
    name = f"{moment:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}-{uuid.uuid4().hex[:6]}"
    run = replace(run, generation=name, attempt=f"{moment:%Y%m%dT%H%M%S}-{uuid.uuid4().hex[:6]}")
    record = {"fingerprint": fingerprint or run.fingerprint, "format_version": 1, "created_at": run.started_at}
    write_json(run.home / "generation.json", record)
    run.manifest.write_bytes(b"manifest")
    run.order.write_bytes(b"order")
    if published:
        receipt = {"job": run.job, "generation": name, "files": list(files)}
        write_json(run.ledger / "receipts" / f"{name}.json", receipt)
        write_json(run.ledger / "receipt.json", receipt)
        for file in files:
            (run.sink / file).write_bytes(b"rows")
    else:
        (run.parts / f"{run.attempt}-000000.part").write_bytes(b"part")
    return name


@pytest.fixture
def run(job: Job) -> Run:
    return replace(describe_run(job, "all"), partition=DAY)


@pytest.fixture
def lived_in(run: Run) -> dict[str, str]:
    """A partition with something of everything; the generations by what they are."""
    names = {
        "superseded": generation(run, 50),
        "replaced": generation(run, 40, published=True, files=(f"date={DAY}/part-old.parquet",)),
        "other settings": generation(run, 30, fingerprint="other"),
        "published": generation(run, 20, published=True, files=(f"date={DAY}/part-new.parquet",)),
        "resumable": generation(run, 10),
    }
    (run.sink / f"date={DAY}/part-old.parquet").remove()
    current = replace(run, generation=names["published"])
    (current.parts / "20260101T000000-aaaaaa-000009.part").write_bytes(b"of a zombie")
    (replace(run, generation=names["resumable"]).parts / "x.part.0123.tmp").write_bytes(b"torn")
    (run.ledger / "generations" / "20200101T000000-a-b" / "manifest").write_bytes(b"no record")
    (run.ledger / "failure.json").write_bytes(b"{}")
    (run.ledger / "quarantine" / "quarantine-1.parquet").write_bytes(b"quarantine")
    (run.ledger / "something else").write_bytes(b"unknown")
    (run.ledger / "lease" / "00000003").create(b'{"released": true}')
    (run.ledger / "lease" / "00000002").create(b"{}")
    (run.sink / f"_publishing-{DAY}-20260101T000000-aaaaaa" / "part-1.parquet.part").write_bytes(b"prepared")
    sample = replace(run, state=run.state / "samples", sink=run.state / "samples" / "published")
    generation(sample, 1, published=True, files=(f"date={DAY}/part-sample.parquet",))
    write_json(sample.ledger / "publishing.json", {})
    (sample.sink / f"_publishing-{DAY}-20260101T000000-aaaaaa" / "part-1.parquet.part").write_bytes(b"prepared")
    return names


@on_both
def test_a_dry_run_names_everything_and_then_what_is_needed_stays_to_the_byte_and_all_else_goes(
    job: Job, place: Location, run: Run, lived_in: dict[str, str]
) -> None:
    before = list_sizes(place)
    shown = collect_garbage(job, keep_receipts=1)
    assert list_sizes(place) == before
    assert shown["dry_run"]
    whys = {item["what"].removeprefix("generations/"): item["why"] for item in shown["removable"]}
    assert "newer one began" in whys[lived_in["superseded"]]
    assert "replaced since" in whys[lived_in["replaced"]]
    assert "settings changed" in whys[lived_in["other settings"]]
    assert "died" in whys["20200101T000000-a-b"]
    assert not {lived_in["resumable"], lived_in["published"]} & set(whys)
    assert shown["files"] == sum(item["files"] for item in shown["removable"])
    assert {item["partition"] for item in shown["removable"]} == {DAY}

    report = collect_garbage(job, keep_receipts=1, dry_run=False)
    after = list_sizes(place)
    ledger = f"_overnight/date={DAY}"
    resumable, current = lived_in["resumable"], lived_in["published"]
    kept = {
        f"date={DAY}/part-new.parquet",
        *(f"{ledger}/{name}" for name in ("receipt.json", "failure.json", "something else")),
        f"{ledger}/quarantine/quarantine-1.parquet",
        f"{ledger}/receipts/{current}.json",
        *(path for path in before if f"{resumable}/parts/" in path and path.endswith(".part")),
        *(
            f"{ledger}/generations/{of}/{name}"
            for of in (resumable, current)
            for name in ("manifest", "generation.json")
        ),
    }
    leases = {path for path in after if "/lease/" in path}
    assert set(after) - leases == kept
    assert {path: after[path] for path in kept} == {path: before[path] for path in kept}
    assert {path.split("/lease/")[1] for path in leases if "samples" not in path} == {"00000004"}
    assert report["files"] == len(before) - len(kept) - 1  # but for the lease that was the newest
    assert unfinished_generation(run.ledger, run.fingerprint) == resumable
    again = collect_garbage(job, keep_receipts=1)
    assert (again["removable"], again["skipped"]) == ([], [])


def test_staging_that_could_be_resumed_goes_when_it_is_old_enough(job: Job, run: Run) -> None:
    name = generation(run, days_ago=10)
    assert collect_garbage(job, older_than=11, dry_run=False)["files"] == 1  # the order of its attempt
    assert unfinished_generation(run.ledger, run.fingerprint) == name
    (item,) = collect_garbage(job, older_than=9, dry_run=False)["removed"]
    assert "could be resumed" in item["why"]
    assert unfinished_generation(run.ledger, run.fingerprint) is None


@on_both
def test_a_receipt_stays_while_the_target_has_a_file_of_it(job: Job, run: Run) -> None:
    # As on an object store, where a publish was cut off before it had removed the old files.
    generation(run, 3, published=True, files=(f"date={DAY}/part-a.parquet",))
    generation(run, 2, published=True, files=(f"date={DAY}/part-b.parquet",))
    collect_garbage(job, keep_receipts=1, dry_run=False)
    refuse_foreign_files(run, job.sink)
    (run.sink / f"date={DAY}/part-a.parquet").remove()
    assert [item["what"] for item in collect_garbage(job, keep_receipts=1, dry_run=False)["removed"]] == ["receipts"]


def test_as_many_receipts_stay_as_were_asked_for(job: Job, run: Run) -> None:
    names = [generation(run, days, published=True) for days in range(9, 1, -1)]
    collect_garbage(job, keep_receipts=3, dry_run=False)
    assert (run.ledger / "receipts").names() == [f"{name}.json" for name in names[-3:]]
    assert (run.ledger / "generations").names() == names[-1:]


def test_a_partition_that_a_live_run_holds_is_left_alone(
    job: Job, place: Location, run: Run, lived_in: dict[str, str]
) -> None:
    with lease.held(run.ledger, "a live run"):
        before = {
            path: size for path, size in list_sizes(place).items() if "lease" not in path and "samples" not in path
        }
        for do in (False, True):
            report = collect_garbage(job, keep_receipts=1, dry_run=not do)
            assert [(skip["partition"], "a live run" in skip["why"]) for skip in report["skipped"]] == [(DAY, True)]
            assert not any("generations/" in item["what"] for item in report["removed" if do else "removable"])
        after = list_sizes(place)
        assert {path: after[path] for path in before} == before
    assert any(lived_in["superseded"] in item["what"] for item in collect_garbage(job)["removable"])


@pytest.mark.parametrize("spoil", ["publishing", "other job"])
def test_a_partition_that_is_not_ours_to_judge_is_left_alone(job: Job, run: Run, spoil: str) -> None:
    generation(run, 50)
    generation(run, 40, published=True)
    if spoil == "publishing":
        write_json(run.ledger / "publishing.json", {})
    else:
        write_json(run.ledger / "receipt.json", {**(read_json(run.ledger / "receipt.json") or {}), "job": "another"})
    before = list_sizes(run.ledger)
    report = collect_garbage(job, dry_run=False)
    assert list_sizes(run.ledger) == before
    assert [skip["partition"] for skip in report["skipped"]] == [DAY]


@on_both
@pytest.mark.parametrize("published", [False, True])
def test_wherever_removing_is_cut_off_no_run_resumes_what_is_half_gone(run: Run, published: bool) -> None:
    generation(run, 50)
    generation(run, 40, fingerprint="other")
    if published:
        generation(run, 30, published=True)
    resumable = replace(run, generation=generation(run, 20))
    items = removable(
        run, read_json(run.ledger / "receipt.json"), list_sizes(run.ledger), 1, idle_since="99991231T000000"
    )
    assert any(resumable.generation in item.what for item in items)
    needed = {path for path in list_sizes(resumable.home) if not path.startswith("attempts/")}
    for place in [place for item in items for place in item.places]:
        files = [place / name for name in list_sizes(place) if name] or [place]
        # A directory's files go in an order that nobody promises: here in the worst.
        for file in sorted(files, key=lambda file: file.name == "generation.json"):
            file.remove()
            found = unfinished_generation(run.ledger, run.fingerprint)
            assert found in (None, resumable.generation)
            assert found is None or needed <= set(list_sizes(resumable.home))
        place.remove()
    assert unfinished_generation(run.ledger, run.fingerprint) is None


@pytest.mark.slow
def test_after_clean_a_resume_repeats_nothing_and_a_published_partition_is_as_it_was(
    run_job: RunJob, tmp_path: Path
) -> None:
    jobs.write_days(tmp_path, [DAY], rows=60)
    described = jobs.job(tmp_path)
    with pytest.raises(CheckFailed):
        run_job({**described, "checks": {"min_rows": 1000}}, DAY)
    job = load_job(tmp_path / "small.yaml")
    (removed,) = collect_garbage(job, keep_receipts=1, dry_run=False)["removed"]
    assert removed["what"].endswith("/attempts")
    first = run_job(described, DAY)
    assert (first["rows_resumed"], first["rows_out"]) == (60, 60)

    second = run_job(described, DAY, force=True)
    report = collect_garbage(job, keep_receipts=1, dry_run=False)
    assert {item["what"] for item in report["removed"]} >= {f"generations/{first['generation']}", "receipts"}
    table = pq.read_table([tmp_path / "out" / file for file in second["files"]], columns=["id"])
    assert sorted(table["id"].to_pylist()) == [*range(60)]
    assert run_job(described, DAY) == second
    assert run_job(described, DAY, force=True)["rows_out"] == 60


def test_the_command_shows_first_and_removes_when_told(run: Run, overnight: Overnight, place: Location) -> None:
    generation(run, 50)
    generation(run, 40, published=True)

    def cleaned(*options: str) -> str:
        done = overnight("clean", "job.yaml", *options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    before = list_sizes(place)
    assert "--yes" in cleaned()
    shown = json.loads(cleaned("--json"))
    assert list_sizes(place) == before
    removed = json.loads(cleaned("--json", "--yes"))
    assert removed["removed"] == shown["removable"]
    assert len(list_sizes(place)) < len(before)
