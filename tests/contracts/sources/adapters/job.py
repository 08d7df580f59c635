"""Rows that another job published as Parquet, written and read by pyarrow. `test_job.py` has the other sinks."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from overnight.tasks.ingest.listing.upstream import Upstream
from overnight.tasks.ingest.sources.job import JobRows
from tests.contracts.sources.adapter import Adapter
from tests.contracts.sources.adapters.parquet import ParquetFiles

NO_LISTING = "the receipt of the other job names its files, so that no folder is listed"
NO_SETTING = "the kind has no such setting: steps choose columns and rows"


def publish(folder: Path, kind: str = "parquet", **more: Any) -> JobRows:
    """Write a receipt of all files in `folder`, as a publish of a sink of this kind leaves it. Return its source."""
    ledger = folder / "_overnight" / "all"
    (ledger / "receipts").mkdir(parents=True, exist_ok=True)
    files = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*.*")) if ledger not in path.parents]
    receipt = {"job": "orders", "generation": str(len(files)), "files": files, **more}
    for path in (ledger / "receipt.json", ledger / f"receipts/{len(files)}.json"):
        path.write_text(json.dumps(receipt))
    upstream = Upstream("orders", "orders.yaml", kind, str(folder), f"{folder}/_overnight", "date", is_dated=False)
    return JobRows(job="orders.yaml").reading(upstream)


class PublishedRows(Adapter):
    kind = "job"
    values = ParquetFiles.values
    damages = ParquetFiles.damages
    not_applicable = {
        "hidden": NO_LISTING,
        "folders": NO_LISTING,
        "columns": NO_SETTING,
        "where": NO_SETTING,
        "names": "a publish chooses the names of its files",
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = folder / f"{name}.parquet"
        pq.write_table(rows, path, compression="none")
        return path

    def source(self, folder: Path, **settings: Any) -> JobRows:
        return publish(folder).model_copy(update={"on_changed": "quarantine", **settings})

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        files = [pq.ParquetFile(path).read() for path in sorted(folder.glob("*.parquet"))]
        return pa.concat_tables(files, promote_options="default").to_pylist()
