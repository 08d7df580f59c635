"""Print facts about a published partition of the demo, read from its files."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIGITS, SENTENCES = Path("predictions/digits"), Path("predictions/sentences")


def read(folder: Path) -> pa.Table:
    """Return all rows of the Parquet files directly in `folder`."""
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in sorted(folder.glob("*.parquet")))


def digits(demo: Path, receipt: dict[str, Any]) -> None:
    day = f"date={receipt['partition']}"
    rows = read(demo / DIGITS / day)
    broken = read(demo / DIGITS / "_overnight" / day / "quarantine").sort_by("row_id").to_pylist()
    right = np.asarray(rows["predicted_label"]) == np.asarray(rows["label"])
    _counts(receipt)
    line("accuracy", f"{right.mean():.1%} of {len(rows)} images, against the names of their folders")
    for row in broken:
        line("quarantined", f"{row['row_id']} in {row['stage']}: {row['error_message']}")
    line("published", demo / DIGITS / day)
    line("receipt", demo / DIGITS / "_overnight" / day / "receipt.json")
    line("quarantine", demo / DIGITS / "_overnight" / day / "quarantine")


def sentences(demo: Path, receipt: dict[str, Any]) -> None:
    rows = read(demo / SENTENCES)
    embeddings = np.stack(rows["embedding"].to_numpy())
    alike = np.triu(embeddings @ embeddings.T, 1)
    alike[alike > 0.9] = 0  # sentences that differ in a digit
    first, second = np.unravel_index(alike.argmax(), alike.shape)
    _counts(receipt)
    line("much alike", f"{rows['text'][int(first)]}")
    line("", f"{rows['text'][int(second)]}  (cosine {alike.max():.2f})")
    line("published", demo / SENTENCES)
    line("receipt", demo / SENTENCES / "_overnight/all/receipt.json")


def prefect_ui(demo: Path) -> str:
    """Return the UI's address of the jobs' server: the configured one, or the one that `overnight run` started."""
    started = demo / "prefect" / "overnight-server.json"
    api = os.environ.get("PREFECT_API_URL") or json.loads(started.read_text())["url"]
    return str(api).removesuffix("/").removesuffix("/api")


def line(what: str, value: object) -> None:
    print(f"  {what:<12} {value}", flush=True)


def _counts(receipt: dict[str, Any]) -> None:
    counts = ("rows_in", "rows_out", "rows_filtered", "rows_quarantined")
    line("rows", ", ".join(f"{receipt[name]} {name.removeprefix('rows_')}" for name in counts))
    line("time", f"{receipt['seconds']:.1f} s, {receipt['rows_per_second']:.0f} rows/s")
