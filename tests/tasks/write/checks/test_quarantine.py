"""What a run that failed had quarantined: staged or only told of, each row once."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.state.manifest import UNITS
from overnight.tasks.state.staged_parts import QUARANTINE
from overnight.tasks.workers import supervisor
from overnight.tasks.workers.supervisor import QuarantineAllowed
from overnight.tasks.write.checks.quarantine import keep_quarantine, losing_stage, quarantine_limit, reasons_of
from overnight.tasks.write.checks.settings import Checks
from tests.contracts.sinks.publications import numbered, publish_parts, sink_of
from tests.tasks.manifests import write_manifest
from tests.tasks.runs import make_run


def details(name: str, reason: str = "expected more") -> dict[str, str]:
    kinds = {"stage": "infer", "error_type": "ValueError", "error_message": reason}
    return {"row_id": name, "uri": f"/in/{name}", **kinds}


def test_what_was_told_of_is_kept_though_no_part_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path)
    monkeypatch.setattr("overnight.tasks.state.lease.check", lambda ledger, token: None)
    monkeypatch.setattr(supervisor, "ask", lambda run, question, *given: (2, [details("a"), details("b")]))
    found = keep_quarantine(run)
    assert found["row_id"].to_pylist() == ["a", "b"]
    with run.failure_quarantine.open() as file:
        assert pq.ParquetFile(file).read().equals(found)


def test_a_run_whose_partition_is_another_ones_by_now_keeps_nothing(tmp_path: Path) -> None:
    run = make_run(tmp_path, token=3)
    assert not len(keep_quarantine(run))
    assert not run.failure_quarantine.exists()


def test_the_most_frequent_reasons_are_told_first_and_the_rest_is_counted(tmp_path: Path) -> None:
    rows = [
        details("a", "rare"),
        *(details(str(i), "often") for i in range(3)),
        *(details(x, x.upper()) for x in "efghi"),
    ]
    lines = reasons_of(pa.Table.from_pylist(rows, schema=QUARANTINE), make_run(tmp_path)).splitlines()
    assert lines[0].startswith("9 quarantined rows, each with its reason: ")
    assert lines[1] == "  3 x infer: ValueError: often"
    assert (len(lines), lines[-1]) == (7, "  and 2 other reasons")


def test_messages_that_differ_only_in_numbers_and_values_are_one_reason(tmp_path: Path) -> None:
    rows = [details(str(i), f"expected a word, found 'number {i}' of {i} characters") for i in range(3)]
    lines = reasons_of(pa.Table.from_pylist(rows, schema=QUARANTINE), make_run(tmp_path)).splitlines()
    assert lines[1:] == ["  3 x infer: ValueError: expected a word, found 'number 0' of 0 characters"]


def test_what_an_attempt_kept_that_failed_is_gone_once_the_next_one_published(tmp_path: Path) -> None:
    run = numbered(tmp_path, 1)
    run.failure_quarantine.write_bytes(b"of the attempt before")
    publish_parts(run, sink_of("parquet", tmp_path), {"x": [1, 2]})
    assert not run.failure_quarantine.exists()


def test_the_losing_stage_is_that_of_most_rows() -> None:
    found = [details("a") | {"stage": "preprocess"}, details("b"), details("c")]
    assert losing_stage(pa.Table.from_pylist(found, schema=QUARANTINE)) == "infer"
    assert losing_stage(QUARANTINE.empty_table()) == "write"


@pytest.mark.parametrize(
    ("path", "rows", "limit", "of"),
    [
        ("b.csv", 19, 1, "of the 20 rows (0.05)"),
        ("b.csv", 4, 1, "of the 5 rows (0.05)"),
        ("b.csv.GZ", 1999, 100, "of the 2,000 rows (0.05)"),
        ("b.csv", None, 100, "even if the files held 2,002 rows, the most that their bytes can hold (0.05)"),
        ("b.csv.GZ", None, 2**62, "(0.05)"),
    ],
)
def test_the_limit_is_a_share_of_the_rows_or_of_the_most_that_the_bytes_can_hold(
    path: str, rows: int | None, limit: int, of: str, tmp_path: Path
) -> None:
    unit = {"uri": "u", "version": "v", "first_row": 0, "row_group": None}
    units = [unit | {"unit": 0, "path": "a.csv", "size": 1000, "rows": 1}]
    units += [unit | {"unit": 1, "path": path, "size": 3000, "rows": rows}]
    manifest, run = pa.Table.from_pylist(units, schema=UNITS), make_run(tmp_path)
    write_manifest(run.manifest, manifest, "digest", None)
    found = quarantine_limit(run, Checks(max_quarantined=0.05), manifest, already=3)
    assert found == QuarantineAllowed(limit, 3, of)
