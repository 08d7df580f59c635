"""Of each kind of source, a run that fails half-way: the next takes up what was staged, and each row is there once."""

import json
import sqlite3
import tarfile
from collections import Counter
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
from pyiceberg.catalog import load_catalog

from overnight.tasks.errors import OvernightError
from tests.conftest import WORKER_PATH
from tests.flows.conftest import RunJob, assert_quarantined, assert_settled, published
from tests.tasks.ingest.sources.test_numpy import npy
from tests.tasks.ingest.sources.test_tfrecord import example
from tests.tasks.ingest.sources.test_tfrecord import file as tfrecords
from tests.tasks.preprocess import pdfs, sounds, videos

FILES, ROWS_A_FILE = 4, 12
ROWS = FILES * ROWS_A_FILE
MODEL = """
import time
from pathlib import Path

import numpy as np


class Half:
    def __init__(self, flag, out, refuses="nothing"):
        self.flag, self.out, self.refuses, self.seen = Path(flag), Path(out), refuses, 0

    def __call__(self, batch):
        rows = len(batch["row_id"])
        if any(name.startswith(self.refuses) for name in batch["row_id"]):
            raise ValueError("not this one")
        self.seen += rows
        if self.seen > 24 and self.flag.exists():
            while not any(self.out.glob("_overnight/*/generations/*/parts/*.part")):
                time.sleep(0.1)
            return {"seen": np.zeros(rows + 1)}  # no result at all: the run fails
        return {"seen": np.ones(rows)}
"""

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


@pytest.mark.slow
@pytest.mark.parametrize("kind", SOURCES)
def test_a_run_that_failed_half_way_is_taken_up_and_no_row_is_lost_or_doubled(
    kind: str, tmp_path: Path, run_job: RunJob
) -> None:
    place, out, flag = tmp_path / "in", tmp_path / "out", tmp_path / "fail"
    place.mkdir()
    flag.touch()
    (WORKER_PATH / "half_way.py").write_text(MODEL)
    asks = {"kind": "python", "target": "half_way:Half", "kwargs": {"flag": str(flag), "out": str(out)}}
    job: dict[str, Any] = {
        "name": f"half-{kind}",
        "source": {"kind": kind, **SOURCES[kind](place)},
        "inference": [{**asks, "batch_size": 4, "workers": 1}],
        "sink": {"kind": "parquet", "path": str(out), "rows_per_part": 4},
    }
    with pytest.raises(OvernightError, match="has 5 values for a batch of 4 rows"):
        run_job(job)
    flag.unlink()
    receipt = run_job(job)
    assert_settled(receipt, written=ROWS)
    assert 0 < receipt["rows_resumed"] < ROWS
    table = published(receipt, out)
    assert len(set(table["row_id"].to_pylist())) == len(table) == ROWS
    if "n" in table.column_names:
        assert sorted(table["n"].to_pylist()) == list(range(ROWS))
    elif kind == "webdataset":
        assert sorted(json.loads(text)["n"] for text in table["text"].to_pylist()) == list(range(ROWS))
    else:
        assert sorted(Path(name).stem for name in table["row_id"].to_pylist()) == [f"{n:04d}" for n in range(ROWS)]


# What makes several rows of a file: a file of so many, and the steps.
MADE: dict[str, tuple[str, Callable[[int], bytes], list[Settings]]] = {
    "pdf": (
        "pdf",
        lambda count: pdfs.pdf([[f"page {page}"] for page in range(count)]),
        [{"kind": "pdf_text"}, {"kind": "split_text", "size": 80, "overlap": 20}],
    ),
    "audio": (
        "wav",
        lambda count: sounds.wav(sounds.tone(count, 8_000), 8_000),
        [{"kind": "decode_audio", "chunk_seconds": 1}],
    ),
    "video": (
        "mp4",
        lambda count: videos.video(10 * count),
        [{"kind": "sample_frames", "every_seconds": 1}],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MADE)
def test_a_file_of_many_rows_is_there_with_all_of_them_or_quarantined_with_all(
    kind: str, tmp_path: Path, run_job: RunJob
) -> None:
    ending, content, steps = MADE[kind]
    place, out, flag = tmp_path / "in", tmp_path / "out", tmp_path / "fail"
    place.mkdir()
    flag.touch()
    rows = {f"{n:04d}.{ending}": n % 4 + 1 for n in range(24)}
    for name, count in rows.items():
        (place / name).write_bytes(content(count))
    (WORKER_PATH / "half_way.py").write_text(MODEL)
    refused = f"0007.{ending}"
    asks = {"flag": str(flag), "out": str(out), "refuses": f"{refused}#2"}
    job: dict[str, Any] = {
        "name": f"many-{kind}",
        "source": {"kind": kind, "path": str(place)},
        "preprocess": steps,
        "inference": [{"kind": "python", "target": "half_way:Half", "kwargs": asks, "batch_size": 4, "workers": 1}],
        "checks": {"max_quarantined": 1},
        "sink": {"kind": "parquet", "path": str(out), "rows_per_part": 4},
    }
    with pytest.raises(OvernightError, match="values for a batch of"):
        run_job(job)
    flag.unlink()
    receipt = run_job(job)
    assert_settled(receipt, written=23)
    assert 0 < receipt["rows_resumed"] < 24
    found = published(receipt, out)["row_id"].to_pylist()
    assert len(set(found)) == len(found)
    assert Counter(name.partition("#")[0] for name in found) == {n: c for n, c in rows.items() if n != refused}
    reason = rf"{refused}#2\S*: .*not this one \(half_way.py:\d+, in __call__\) \(1 of 4 rows made of this one failed\)"
    assert_quarantined(out, {refused: reason})
