"""A job that reads another: the rows of one publish, by their own names; replacement and staleness."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.errors import InputError
from tests.flows.conftest import RunJob, assert_settled

DAY = "2026-01-02"


@pytest.fixture
def chain(tmp_path: Path) -> tuple[Path, Path]:
    """The files of two jobs: `orders` reads days of CSV, and `totals` reads `orders`."""

    def written(name: str, source: dict[str, Any], **more: Any) -> Path:
        path = tmp_path / f"{name}.yaml"
        sink = {"kind": "parquet", "path": str(tmp_path / name)}
        path.write_text(yaml.safe_dump({"name": name, "source": source, "sink": sink, **more}))
        return path

    first = written("orders", {"kind": "csv", "path": f"{tmp_path}/in/{{partition}}/"})
    doubled = {"kind": "derive_columns", "columns": {"double": "price * 2"}}
    return first, written("totals", {"kind": "job", "job": str(first)}, preprocess=[doubled])


def deliver(folder: Path, day: str, *prices: int) -> None:
    (folder / "in" / day).mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{number},{price}\n" for number, price in enumerate(prices))
    (folder / "in" / day / "a.csv").write_text(f"row_id,price\n{rows}")


def rows(folder: Path, receipt: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found = pa.concat_tables([pq.ParquetFile(folder / "totals" / name).read() for name in receipt["files"]])
    assert found.column_names == ["row_id", "uri", "source_row_id", "price", "double"]
    assert set(found["uri"].to_pylist()) == {f"{folder}/in/{receipt['partition']}/a.csv"}
    return {row["row_id"]: (row["price"], row["double"]) for row in found.to_pylist()}


def status(path: Path, day: str) -> str:
    [entry] = read_ledger(load_job(path), date.fromisoformat(day), date.fromisoformat(day), inputs=True)
    return entry.status


def test_a_job_reads_the_rows_of_another_and_is_stale_once_they_are_published_anew(
    run_job: RunJob, chain: tuple[Path, Path], tmp_path: Path
) -> None:
    orders, totals = chain
    deliver(tmp_path, DAY, 1, 2, 3)
    waited = rf"source\.wait_for: expected the partition {DAY} of the job orders, found it not published, after waiting"
    with pytest.raises(InputError, match=waited):
        run_job(totals, DAY, settings=["source.wait_for.timeout_minutes=0.01"])

    run_job(orders, DAY)
    receipt = run_job(totals, DAY)
    assert_settled(receipt)
    assert rows(tmp_path, receipt) == {"a.csv#0": (1, 2), "a.csv#1": (2, 4), "a.csv#2": (3, 6)}
    assert run_job(totals, DAY)["generation"] == receipt["generation"]
    assert status(totals, DAY) == "published"

    deliver(tmp_path, DAY, 10, 20, 30, 40)
    assert (status(orders, DAY), status(totals, DAY)) == ("stale", "stale")
    assert run_job(totals, DAY)["generation"] == receipt["generation"]  # it has the published rows already
    run_job(orders, DAY)
    assert status(totals, DAY) == "stale"
    again = run_job(totals, DAY)
    assert again["generation"] != receipt["generation"]
    assert rows(tmp_path, again) == {f"a.csv#{n}": (10 * n + 10, 20 * n + 20) for n in range(4)}
