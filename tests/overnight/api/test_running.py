"""Runs through the Python API, on the session's Ray and Prefect server."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
import ray.data
from prefect import flow

import overnight
from overnight.api.data import place_data
from overnight.tasks.rows.tensors import to_numpy
from overnight.tasks.storage.location import Location
from tests.conftest import WORKER_PATH

pytestmark = pytest.mark.slow

MODEL = """
class Double:
    def __call__(self, batch):
        return {"double": batch["n"] * 2}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    (WORKER_PATH / "doubling_model.py").write_text(MODEL)
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def job(folder: Path) -> Iterator[overnight.Job]:
    sys.path.append(str(WORKER_PATH))
    yield overnight.Job(
        name="double",
        source=overnight.sources.Csv(path=str(folder / "in/{partition}/")),
        inference=[overnight.models.Python(target="doubling_model:Double")],
        sink=overnight.sinks.Parquet(path=str(folder / "out")),
    )
    sys.path.remove(str(WORKER_PATH))


@pytest.fixture(scope="module")
def receipt(ray_session: None, prefect_api: str, job: overnight.Job) -> overnight.Receipt:
    """The receipt of a run that a coroutine starts, as a notebook does; it checks what the run leaves behind."""

    async def call() -> overnight.Receipt:
        return overnight.run(job, "2026-01-02", data=frame(), reason="a test", progress=False)

    before = state()
    found = asyncio.run(call())
    assert state() == before
    return found


def frame() -> pd.DataFrame:
    return pd.DataFrame({"n": range(100)}, index=pd.Index([f"k{n}" for n in range(100)], name="key"))


def state() -> tuple[Any, ...]:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    return dict(os.environ), os.getcwd(), list(sys.path), handlers


def test_a_dataframe_is_published_under_its_partition_and_read_back(
    receipt: overnight.Receipt, job: overnight.Job, folder: Path
) -> None:
    assert (receipt.rows_in, receipt.rows_out, receipt.partition, receipt.reason) == (100, 100, "2026-01-02", "a test")
    table = receipt.table().sort_by("n")
    assert table.column_names == ["row_id", "uri", "key", "n", "double"]
    assert table["row_id"][1].as_py() == "data.parquet#1"
    assert table["double"].to_pylist() == [n * 2 for n in range(100)]
    assert receipt.dataset().count() == 100
    assert receipt.quarantine().num_rows == 0
    assert Path(receipt.path).exists()
    assert not (folder / "out/_overnight/data/2026-01-02").exists()
    [entry] = overnight.status(job, "2026-01-02", "2026-01-02")
    assert (entry.partition, entry.receipt["rows_out"]) == ("2026-01-02", 100)
    again = overnight.run(job, "2026-01-02", data=pa.Table.from_pandas(frame().reset_index()), progress=False)
    assert dict(again) == dict(receipt)  # the same data


def test_a_ray_dataset_is_written_by_ray_and_keeps_its_arrays(ray_session: None, tmp_path: Path) -> None:
    arrays = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)
    folder = Location(str(tmp_path))
    digests = [place_data(ray.data.from_numpy(arrays), folder) for _ in range(2)]
    assert digests[0] == digests[1]
    found = pq.read_table(tmp_path / digests[0] / "data.parquet")
    assert np.array_equal(to_numpy(found["data"]), arrays)
    periods = ray.data.from_pandas(pd.DataFrame({"a": pd.period_range("2026-01", periods=1, freq="M")}))
    with pytest.raises(overnight.JobError, match=r"found pandas\.period in the column a"):
        place_data(periods, folder)
    with pytest.raises(overnight.JobError, match="expected at least one row"):
        place_data(ray.data.from_arrow(pa.table({"a": pa.array([], pa.int8())})), folder)
    with pytest.raises(overnight.OvernightError, match="KeyError: 'missing"):
        place_data(ray.data.range(2).map(lambda row: {"n": row["missing"]}), folder)
    several = place_data(ray.data.range(100, override_num_blocks=2), folder)
    assert sorted(pq.read_table(tmp_path / several)["id"].to_pylist()) == list(range(100))


def test_a_run_in_a_flow_is_its_subflow_and_errors_are_those_of_the_terminal(
    receipt: overnight.Receipt, job: overnight.Job, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day = folder / "in/2026-01-03"
    day.mkdir(parents=True)
    (day / "a.csv").write_text("n\n1\n2\n")

    @flow
    def mine() -> list[Any]:
        before = state()
        done = overnight.backfill(job, "2026-01-03", "2026-01-03")
        with pytest.raises(overnight.InputError, match="expected a directory or bucket, found nothing at"):
            overnight.run(job, "2026-01-04")
        assert state() == before
        return done

    [entry] = mine()
    assert (entry.status, entry.receipt["rows_out"]) == ("published", 2)
    assert "Prefect UI:" not in capsys.readouterr().err
