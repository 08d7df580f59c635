"""What of a partition's ledger is no longer needed, why, and in which order it goes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.state.garbage import (
    GarbageItem,
    list_sizes,
    removable,
    removable_prepared,
    removable_sample,
)
from overnight.tasks.state.run import Run, write_json
from overnight.tasks.storage.location import Location
from tests.tasks.runs import make_run

OLDER, REPLACED, OTHER, CURRENT, NEWER = (f"2026010{day}T000000-a" for day in range(1, 6))
RESUMED = "20260107T000000-b"  # the last attempt at NEWER
ATTEMPT = "20260101T000000-1a2b3c"  # that died while it published


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path)


def begun(run: Run, name: str, fingerprint: str = "f", **record: Any) -> None:
    """A generation with its record, and a staged part of five bytes."""
    home = run.ledger / "generations" / name
    write_json(home / "generation.json", {"fingerprint": fingerprint, "format_version": 1, **record})
    (home / "parts/a.part").write_bytes(b"12345")


def published(run: Run, name: str, *files: str) -> dict[str, Any]:
    """The receipt of a generation."""
    receipt = {"job": run.job, "generation": name, "files": [f"date=2026-01-02/{file}" for file in files]}
    write_json(run.ledger / f"receipts/{name}.json", receipt)
    return receipt


def found(run: Run, receipt: Any, keep_receipts: int = 1, idle_since: str = "") -> list[GarbageItem]:
    return removable(run, receipt, list_sizes(run.ledger), keep_receipts, idle_since)


def what_and_why(items: list[GarbageItem]) -> list[tuple[str, str]]:
    return [(item.what.removeprefix("generations/"), item.why) for item in items]


def test_all_that_no_run_needs_is_named_with_its_reason_and_the_rest_stays(run: Run) -> None:
    for name in (OLDER, REPLACED, CURRENT, NEWER):
        begun(run, name)
    begun(run, OTHER, "another fingerprint")
    for file in ("no-record/manifest", f"{CURRENT}/attempts/x/order", f"{NEWER}/attempts/{RESUMED}/order"):
        (run.ledger / "generations" / file).write_bytes(b"1")
    for folder in ("duplicates", "answers"):
        (run.ledger / f"generations/{CURRENT}/{folder}/x").write_bytes(b"12")
    for file in (f"generations/{NEWER}/parts/x.tmp", f"generations/{OLDER}/parts/x.tmp", "receipt.json.1.tmp"):
        (run.ledger / file).write_bytes(b"torn")
    for file in ("lease/00000002", "lease/00000002.1.tmp", "lease/00000009", "lease/00000010", "something else"):
        (run.ledger / file).write_bytes(b"123")
    for name in (REPLACED, CURRENT, NEWER, "gone"):
        (run.ledger / f"reports/{name}.html").write_bytes(b"<p>")
        (run.ledger / f"reports/{name}.json").write_bytes(b"{}")
    (run.ledger / "report.html").write_bytes(b"<p>")
    published(run, REPLACED, "old.parquet")
    items = found(run, published(run, CURRENT, "new.parquet"))
    superseded = "no run would resume it: a newer one began, or settings changed"
    assert [(*line, item.files, item.size) for line, item in zip(what_and_why(items), items, strict=True)] == [
        (OLDER, superseded, 3, items[0].size),
        (REPLACED, "published, and replaced since", 2, items[1].size),
        (OTHER, superseded, 2, items[2].size),
        (f"{CURRENT}/attempts", "plans of attempts that ended", 1, 1),
        (f"{CURRENT}/parts", "staged when it was published already", 1, 5),
        (f"{CURRENT}/duplicates", "decided for rows that are published now", 1, 2),
        (f"{CURRENT}/answers", "kept for rows that are published now", 1, 2),
        (f"{NEWER}/attempts", "plans of attempts that ended", 1, 1),
        ("no-record", "its process died while making or removing it", 1, 1),
        ("receipts", "older than the newest 1", 1, items[9].size),
        ("reports", "of generations that are removed", 4, 10),
        ("lease", "of runs that ended", 3, 9),
        ("*.tmp", "half-written by a process that died", 2, 8),
    ]
    record = run.ledger / f"generations/{OLDER}/generation.json"
    assert items[0].places == (record, run.ledger / f"generations/{OLDER}")  # the record first: it is never resumed
    assert items[0].size == len(record.read_bytes()) + len(b"12345torn")
    assert {item.partition for item in items} == {"2026-01-02"}
    for item in items:
        item.remove()
    assert sorted(list_sizes(run.ledger)) == [
        *(f"generations/{CURRENT}/{name}" for name in ("generation.json",)),
        *(f"generations/{NEWER}/{name}" for name in ("generation.json", "parts/a.part")),
        "lease/00000010",
        f"receipts/{CURRENT}.json",
        "report.html",
        *(f"reports/{name}.{kind}" for name in (CURRENT, NEWER) for kind in ("html", "json")),
        "something else",
    ]
    assert found(run, {"generation": CURRENT}) == []


def test_batches_that_may_be_under_way_are_named_before_their_generation_goes(run: Run) -> None:
    begun(run, OLDER)
    begun(run, CURRENT)
    for part, state in enumerate(("created", "done", "creating")):
        write_json(
            run.ledger / f"generations/{OLDER}/batches/part-{part:05}.json",
            {"state": state, "batch": f"batch-{part}" * (state != "creating")},
        )
    (run.ledger / f"generations/{OLDER}/batches/part-00000.jsonl").write_bytes(b"requests")
    [(_, reason)] = what_and_why(found(run, published(run, CURRENT, "a.parquet")))[:1]
    assert reason.endswith("; 2 batches at the provider may be paid: batch-0, one without an id")


def test_no_link_is_followed_and_only_what_is_removed_is_counted(run: Run, tmp_path: Path) -> None:
    for name in (OLDER, CURRENT):
        begun(run, name)
    outside = tmp_path / "outside"
    (outside / "attempts/x").mkdir(parents=True)
    files = {outside / name for name in ("generation.json", "attempts/x/order", "a.tmp")}
    for file in files:
        file.write_text('{"fingerprint": "of others", "format_version": 1}')
    ledger, sink = Path(run.ledger.uri), Path(run.sink.uri)
    (ledger / "generations/linked").symlink_to(outside)
    (ledger / f"generations/{CURRENT}/attempts").symlink_to(outside)
    (ledger / f"generations/{OLDER}/inside").symlink_to(outside)
    (sink / f"_publishing-{run.partition}-{ATTEMPT}").symlink_to(outside)
    items = found(run, {"generation": CURRENT, "job": run.job})
    prepared = removable_prepared(run, run.sink.names())
    counts = {item.what.removeprefix("generations/"): item.files for item in (*items, *prepared)}
    parts = f"{CURRENT}/parts"
    assert counts == {OLDER: 3, parts: 1, f"_publishing-{run.partition}-{ATTEMPT}": 0}
    for item in (*items, *prepared):
        item.remove()
    assert {file for file in files if file.exists()} == files
    assert run.sink.names() == ["_overnight"]


@pytest.mark.parametrize(
    ("idle_since", "reasons"),
    [
        ("", ["plans of attempts that ended"]),
        (RESUMED, ["plans of attempts that ended"]),
        ("20260108", ["could be resumed, but its last attempt began 2026-01-07"]),
    ],
)
@pytest.mark.parametrize("is_retry", [False, True])
def test_what_the_next_run_would_resume_goes_if_its_last_attempt_is_too_old(
    idle_since: str, reasons: list[str], is_retry: bool, run: Run
) -> None:
    receipt = None
    if is_retry:
        begun(run, CURRENT)
        receipt = published(run, CURRENT)
        (run.ledger / f"generations/{CURRENT}/parts").remove()
    begun(run, NEWER, **({"fingerprint": "g", "continues": CURRENT, "current": "f"} if is_retry else {}))
    for attempt in ("20260106T000000-z", RESUMED):
        (run.ledger / f"generations/{NEWER}/attempts/{attempt}/order").write_bytes(b"1")
    assert [item.why for item in found(run, receipt, idle_since=idle_since)] == reasons


def test_a_receipt_stays_while_it_is_new_or_current_or_the_target_has_a_file_of_it(run: Run) -> None:
    current = published(run, OLDER, "a.parquet")  # it is current again: a later one was taken back
    published(run, REPLACED, "b.parquet", "gone.parquet")
    published(run, OTHER, "gone too.parquet")
    published(run, NEWER, "c.parquet")
    (run.target / "b.parquet").write_bytes(b"rows")
    [item] = found(run, current)
    assert item.places == (run.ledger / f"receipts/{OTHER}.json",)
    assert found(run, current, keep_receipts=2) == []


def test_a_sample_goes_as_a_whole_its_published_rows_first(run: Run) -> None:
    assert removable_sample(run, {}) == removable_sample(run, {"lease/1": 3}) == []
    (run.target / "a.parquet").write_bytes(b"1234")
    [item] = removable_sample(run, {"lease/1": 3, "receipt.json": 5, "generations/x/manifest": 2})
    assert item.places == (run.target, run.ledger / "generations", run.ledger / "receipt.json")
    assert (item.what, item.files, item.size) == ("samples", 3, 11)


def test_what_runs_prepared_for_this_partition_goes(run: Run) -> None:
    days = ("2026-01-02", "2026-01-03", "2026-01-02-west")
    names = [*(f"_publishing-{day}-{ATTEMPT}" for day in days), "date=2026-01-02"]
    (run.sink / names[0] / "deep/a.part").write_bytes(b"12")
    [item] = removable_prepared(run, names)
    assert (item.what, item.places, item.files, item.size) == (names[0], (run.sink / names[0],), 1, 2)


def test_what_runs_of_the_whole_job_prepared_beside_a_disk_s_sink_goes(run: Run, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(Path(run.sink.uri))
    run = replace(run, partition="all", sink=Location(str(tmp_path / "link")))
    sink = Path(run.sink.uri).resolve()
    names = [f".{sink.name}-publishing-{ATTEMPT}", f".{sink.name}-publishing-{ATTEMPT}.cut-off"]
    others = [f".{sink.name}-publishing-mine", f".other-publishing-{ATTEMPT}"]
    for name in (*names, *others):
        (sink.parent / name).mkdir()
    assert [item.what for item in removable_prepared(run, [])] == names
