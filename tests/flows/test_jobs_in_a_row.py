"""A job that reads another: the rows of one publish, by their own names; replacement and staleness."""

from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.flows.job.loading import load_job
from overnight.flows.ledger.partition_status import read_ledger
from overnight.tasks.errors import InputError
from tests import jobs
from tests.flows.conftest import RunJob, assert_settled

DAY = "2026-01-02"


def deliver(folder: Path, *prices: int) -> None:
    (folder / "in" / DAY).mkdir(parents=True, exist_ok=True)
    rows = "".join(f"{number},{price}\n" for number, price in enumerate(prices))
    (folder / "in" / DAY / "a.csv").write_text(f"row_id,price\n{rows}")


def rows(folder: Path, receipt: dict[str, Any]) -> dict[str, tuple[int, int]]:
    found = pa.concat_tables([pq.ParquetFile(folder / "totals/out" / name).read() for name in receipt["files"]])
    assert found.column_names == ["row_id", "uri", "source_row_id", "price", "double"]
    assert set(found["uri"].to_pylist()) == {f"{folder}/in/{DAY}/a.csv"}
    return {row["row_id"]: (row["price"], row["double"]) for row in found.to_pylist()}


def status(path: Path) -> str:
    [entry] = read_ledger(load_job(path), date.fromisoformat(DAY), date.fromisoformat(DAY), inputs=True)
    return entry.status


@pytest.mark.slow
def test_a_job_reads_the_rows_of_another_and_is_stale_once_they_are_published_anew(
    run_job: RunJob, tmp_path: Path
) -> None:
    source = {"kind": "csv", "path": f"{tmp_path}/in/{{partition}}/"}
    orders = jobs.write_job(tmp_path / "orders/job.yaml", name="orders", source=source)
    doubled = {"kind": "derive_columns", "columns": {"double": "price * 2"}}
    upstream = {"kind": "job", "job": str(orders)}
    totals = jobs.write_job(tmp_path / "totals/job.yaml", name="totals", source=upstream, preprocess=[doubled])
    deliver(tmp_path, 1, 2, 3)
    with pytest.raises(InputError, match=f"the partition {DAY} of the job orders, found it not published"):
        run_job(totals, DAY, settings=["source.wait_for.timeout_minutes=0.01"])

    run_job(orders, DAY)
    receipt = run_job(totals, DAY)
    assert_settled(receipt)
    assert rows(tmp_path, receipt) == {"a.csv#0": (1, 2), "a.csv#1": (2, 4), "a.csv#2": (3, 6)}
    assert status(totals) == "published"

    deliver(tmp_path, 10, 20, 30, 40)
    assert (status(orders), status(totals)) == ("stale", "stale")
    assert run_job(totals, DAY)["generation"] == receipt["generation"]  # it has the published rows already
    run_job(orders, DAY)
    assert status(totals) == "stale"
    again = run_job(totals, DAY)
    assert again["generation"] != receipt["generation"]
    assert rows(tmp_path, again) == {f"a.csv#{n}": (10 * n + 10, 20 * n + 20) for n in range(4)}
