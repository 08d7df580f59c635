"""Print facts about a published partition of the demo that `overnight run` does not know, read from its files."""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIGITS, SENTENCES = Path("predictions/digits"), Path("predictions/sentences")


def read(folder: Path) -> pa.Table:
    """Return all rows of the Parquet files directly in `folder`."""
    return pa.concat_tables(pq.read_table(file, partitioning=None) for file in sorted(folder.glob("*.parquet")))


def digits(demo: Path, day: str) -> None:
    rows = read(demo / DIGITS / f"date={day}")
    right = np.asarray(rows["predicted_label"]) == np.asarray(rows["label"])
    line("accuracy", f"{right.mean():.1%} of {len(rows)} images, against the names of their folders")
    line("receipt", demo / DIGITS / "_overnight" / f"date={day}" / "receipt.json")


def sentences(demo: Path) -> None:
    rows = read(demo / SENTENCES)
    embeddings = np.stack(rows["embedding"].to_numpy())
    alike = np.triu(embeddings @ embeddings.T, 1)
    alike[alike > 0.9] = 0  # sentences that differ in a digit
    first, second = np.unravel_index(alike.argmax(), alike.shape)
    line("much alike", f"{rows['text'][int(first)]}")
    line("", f"{rows['text'][int(second)]}  (cosine {alike.max():.2f})")
    line("receipt", demo / SENTENCES / "_overnight/all/receipt.json")


def prefect_ui(demo: Path) -> str:
    """Return the UI's address of the jobs' server: the configured one, or the one that `overnight run` started."""
    started = demo / "prefect" / "overnight-server.json"
    api = os.environ.get("PREFECT_API_URL") or json.loads(started.read_text())["url"]
    return str(api).removesuffix("/").removesuffix("/api")


def line(what: str, value: object) -> None:
    print(f"  {what:<12} {value}", flush=True)
