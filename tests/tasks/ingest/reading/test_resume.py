"""For each kind of source, a read that stopped anywhere: the next one reads only what no staged part settles."""

import json
import random
import sqlite3
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import datasets
import lance
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from PIL import Image
from pydantic import TypeAdapter
from pyiceberg.catalog import load_catalog

from overnight.tasks.ingest.kinds import Source
from overnight.tasks.ingest.listing.take_manifest import take_manifest
from overnight.tasks.ingest.reading.datasource import ManifestDatasource
from overnight.tasks.ingest.task import plan_read
from overnight.tasks.rows import blocks
from overnight.tasks.state import row_ranges, staged_parts
from overnight.tasks.state.manifest import read_schema
from overnight.tasks.state.run import Run
from tests.tasks.ingest.sources.test_numpy import npy
from tests.tasks.ingest.sources.test_tfrecord import example
from tests.tasks.ingest.sources.test_tfrecord import file as tfrecords
from tests.tasks.runs import make_run

FILES, ROWS_A_FILE = 4, 12
ROWS = FILES * ROWS_A_FILE
Settings = dict[str, Any]


def some(number: int) -> pa.Table:
    return pa.table({"n": range(number * ROWS_A_FILE, (number + 1) * ROWS_A_FILE)})


def parquet(place: Path) -> Settings:
    for number in range(FILES):
        pq.write_table(some(number), place / f"{number}.parquet", row_group_size=5)
    return {"path": str(place)}


def csv(place: Path) -> Settings:
    for number in range(FILES):
        pyarrow.csv.write_csv(some(number), place / f"{number}.csv")
    return {"path": str(place)}


def jsonl(place: Path) -> Settings:
    for number in range(FILES):
        lines = [json.dumps(row) + "\n" for row in some(number).to_pylist()]
        (place / f"{number}.jsonl").write_text("".join(lines))
    return {"path": str(place)}


def numpy(place: Path) -> Settings:
    for number in range(FILES):
        (place / f"{number}.npy").write_bytes(npy(some(number)["n"].to_numpy()))
    return {"path": str(place), "column": "n"}


def tfrecord(place: Path) -> Settings:
    for number in range(FILES):
        (place / f"{number}.tfrecord").write_bytes(tfrecords(*[example(**row) for row in some(number).to_pylist()]))
    return {"path": str(place)}


def huggingface(place: Path) -> Settings:
    datasets.Dataset.from_dict({"n": range(ROWS)}).save_to_disk(place, num_shards=FILES)
    return {"path": str(place)}


def delta(place: Path) -> Settings:
    for number in range(FILES):
        write_deltalake(place, some(number), mode="append")
    return {"path": str(place)}


def lance_table(place: Path) -> Settings:
    lance.write_dataset(pa.table({"n": range(ROWS)}), f"{place}/table.lance", max_rows_per_file=ROWS_A_FILE)
    return {"kind": "lance", "path": f"{place}/table.lance"}


def iceberg(place: Path) -> Settings:
    catalog = {"name": "test", "type": "sql", "uri": f"sqlite:///{place}/catalog.db"}
    tables = load_catalog(**catalog, warehouse=f"file://{place}/warehouse")
    tables.create_namespace("some")
    table = tables.create_table("some.numbers", schema=some(0).schema)
    for number in range(FILES):
        table.append(some(number))
    return {"table": "some.numbers", "catalog": catalog}


def sql(place: Path) -> Settings:
    with sqlite3.connect(place / "data.db") as connection:
        connection.execute("CREATE TABLE numbers (n INTEGER)")
        connection.executemany("INSERT INTO numbers VALUES (?)", [(n,) for n in range(ROWS)])
    url = f"sqlite:///{place}/data.db"
    return {"url": url, "query": "SELECT n FROM numbers", "key": "n", "rows_per_unit": ROWS_A_FILE}


def webdataset(place: Path) -> Settings:
    for number in range(FILES):
        with tarfile.open(place / f"{number}.tar", "w") as archive:
            for row in some(number).to_pylist():
                content = json.dumps(row).encode()
                member = tarfile.TarInfo(f"{row['n']:04d}.json")
                member.size = len(content)
                archive.addfile(member, BytesIO(content))
    return {"path": str(place), "columns": {"text": "json"}}


def images(place: Path) -> Settings:
    for n in range(ROWS):
        Image.new("RGB", (8, 8), (n, n, n)).save(place / f"{n:04d}.png")
    return {"path": str(place)}


def uris(place: Path) -> Settings:
    for n in range(ROWS):
        (place / f"{n:04d}.bin").write_text(f"{n}")
    (place / "list.csv").write_text("uri,n\n" + "".join(f"{n:04d}.bin,{n}\n" for n in range(ROWS)))
    return {"path": f"{place}/list.csv", "content": "bytes", "keep": ["n"]}


SOURCES: dict[str, Callable[[Path], Settings]] = {
    **{"parquet": parquet, "csv": csv, "jsonl": jsonl, "numpy": numpy, "tfrecord": tfrecord, "webdataset": webdataset},
    **{"huggingface": huggingface, "delta": delta, "lance": lance_table, "iceberg": iceberg, "sql": sql, "uris": uris},
    "images": images,  # text is read by the same class; for pdf, audio and video see below
}


def read_what_is_left(run: Run, source: Any) -> pa.Table:
    """What the next attempt of `run` reads."""
    plan_read(run)
    tasks = ManifestDatasource(source, run, read_schema(run.manifest)).get_read_tasks(1)
    return pa.concat_tables([block for task in tasks for block in task()], promote_options="permissive")


def stage(run: Run, name: str, rows: pa.Table) -> None:
    """Write a part that settles these rows."""
    table, errors = pa.table({"row_id": rows["row_id"]}), staged_parts.DETAILS.empty_table()
    staged_parts.write_part(run.parts, name, table, errors, row_ranges.ranges_of(rows), {}, "none")


def some_pieces(rows: pa.Table) -> list[pa.Table]:
    draw = random.Random(1)
    starts = [draw.randrange(len(rows)) for _ in range(3)]
    return [rows.slice(start, draw.randrange(1, len(rows) // 2)) for start in starts]


def all_but_one(rows: pa.Table) -> list[pa.Table]:
    live = [place for place, state in enumerate(rows["__state"].to_pylist()) if state == blocks.LIVE]
    return [rows.slice(0, live[-1]), rows.slice(live[-1] + 1)]


@pytest.mark.parametrize("staged", [some_pieces, all_but_one])
@pytest.mark.parametrize("kind", SOURCES)
def test_what_is_staged_is_not_read_again_and_all_the_rest_is(
    kind: str, staged: Callable[[pa.Table], list[pa.Table]], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    source = TypeAdapter(Source).validate_python({"kind": kind, **SOURCES[kind](tmp_path / "in")})
    run = make_run(tmp_path, partition="all")
    take_manifest(run.manifest, source, run.partition, None)
    whole = read_what_is_left(run, source)
    assert len(set(row_ids(whole))) == len(row_ids(whole)) == ROWS
    pieces = staged(whole)
    for number, piece in enumerate(pieces):
        stage(run, f"20260102T000000-aaaaaa-{number:06d}", piece)
    left = read_what_is_left(run, source)
    settled = set(row_ids(pa.concat_tables(pieces)))
    assert sorted([*settled, *row_ids(left)]) == sorted(row_ids(whole))
    stage(run, "20260102T000000-bbbbbb-000000", left)
    plan_read(run)
    assert not ManifestDatasource(source, run, read_schema(run.manifest)).get_read_tasks(1)


def row_ids(rows: pa.Table) -> list[str]:
    live = rows.filter(pa.array(rows["__state"].to_numpy() == blocks.LIVE))
    return list(live["row_id"].to_pylist())
