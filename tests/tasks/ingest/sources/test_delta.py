"""Delta tables on S3, what is no table, and logs that lie. `tests/contracts/sources` has the other promises."""

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.delta import Delta
from overnight.tasks.state.manifest import digest
from overnight.tasks.storage.object_store import storage_options
from tests.contracts.sources.reading import read_all
from tests.contracts.sources.test_tables import mark_deleted, rewrite_log


def rows(first: int, count: int = 3, day: str = "2026-01-01") -> pa.Table:
    numbers = range(first, first + count)
    return pa.table({"n": numbers, "text": [f"row {n}" for n in numbers], "day": [day] * count})


@pytest.fixture
def table(tmp_path: Path) -> str:
    place = str(tmp_path / "table")
    write_deltalake(place, rows(0), partition_by=["day"])
    return place


def test_rows_of_another_partition_are_no_change_of_the_inputs(table: str) -> None:
    source = Delta(path=table, where={"day": "{partition}"})
    before = digest(list_inputs(source, "2026-01-01"))
    write_deltalake(table, rows(90, 1, "2026-01-02"), mode="append")
    assert digest(list_inputs(source, "2026-01-01")) == before
    assert read_all(source, partition="2026-01-02").column("n") == [90]
    with pytest.raises(InputError):
        list_inputs(source, "2026-01-03")


def test_a_table_on_s3_is_read_without_the_rows_that_are_deleted(s3: Any, bucket: str, table: str) -> None:
    mark_deleted(Path(table), [1])
    for path in filter(Path.is_file, Path(table).rglob("*")):
        s3.upload_file(str(path), bucket, f"deep/table/{path.relative_to(table)}")
    place = f"s3://{bucket}/deep/table"
    write_deltalake(place, rows(5, 1, "2026-01-02"), storage_options=storage_options(place), mode="append")
    found = read_all(Delta(path=place, where={"day": "{partition}"}), partition="2026-01-01")
    assert found.column("n") == [0, 2]
    assert all(row["uri"].startswith(f"{place}/day=2026-01-01/part-") for row in found.good.values())


def test_what_is_no_table_or_no_version_of_it_says_so(table: str, tmp_path: Path) -> None:
    def assert_refused(source: Delta, words: str = "source") -> None:
        with pytest.raises(InputError, match=words):
            list_inputs(source, "all")

    assert_refused(Delta(path=str(tmp_path / "nowhere")))
    assert_refused(Delta(path=table, version=7))
    assert_refused(Delta(path=table, where={"date": "x"}))
    with pytest.raises(InputError):
        read_all(Delta(path=table, columns=["old"]))
    log = Path(table) / "_delta_log" / f"{0:020d}.json"
    content = log.read_text()
    rewrite_log(Path(table), lambda action: None, ["variantType"])
    assert_refused(Delta(path=table), "variant")
    log.write_text(content)
    mark_deleted(Path(table))
    log.write_text(log.read_text().replace('"pathOrInlineDv": "', '"pathOrInlineDv": "zz'))
    assert_refused(Delta(path=table), "deletion vectors")
    log.write_bytes(b"{no json")
    assert_refused(Delta(path=table))
    shutil.rmtree(log.parent)
    assert_refused(Delta(path=table))


LIES: dict[str, tuple[dict[str, Any], str]] = {
    "more rows": ({"stats": '{"numRecords": 1000000000000}'}, ""),
    "fewer rows": ({"stats": '{"numRecords": 1}'}, ""),
    "rows below none": ({"stats": '{"numRecords": -5}'}, ""),
    "no statistics": ({"stats": "no json"}, ""),
    "more bytes": ({"size": 10**12}, "expected a file of 1,000,000,000,000 bytes, as listed, found "),
    "fewer bytes": ({"size": 1}, "expected a file of 1 bytes, as listed, found "),
    "bytes below none": ({"size": -1}, "expected a file of -1 bytes, as listed, found "),
    "another file": ({"path": "nowhere.parquet"}, "expected a file, as listed, found no file any more"),
}


@pytest.mark.parametrize("version", [0, 4], ids=["first", "behind"])
@pytest.mark.parametrize(("said", "reason"), LIES.values(), ids=LIES)
def test_a_log_that_lies_about_a_file_costs_it_alone_or_nothing(
    tmp_path: Path, said: dict[str, Any], reason: str, version: int
) -> None:
    for number in range(5):
        write_deltalake(tmp_path, rows(number * 10), mode="append")
    log = tmp_path / f"_delta_log/{version:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    lies = [action | {"add": action["add"] | said} if "add" in action else action for action in actions]
    log.write_text("".join(json.dumps(action) + "\n" for action in lies))
    found = read_all(Delta(path=str(tmp_path)))
    lost = version * 10 if reason else None
    assert sorted(found.column("n")) == [n + k for n in range(0, 50, 10) if n != lost for k in range(3)]
    assert len(found.bad) == bool(reason)
    assert all(told.startswith(reason) for told in found.bad.values())
