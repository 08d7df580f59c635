"""The interface of each contender: `settings()` reads DATA/settings.json, and `Results` writes Parquet as rows come."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def settings() -> tuple[dict[str, Any], Path]:
    """Return DATA/settings.json with absolute paths, and the folder OUT. DATA and OUT are the two arguments."""
    data, out = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    return json.loads((data / "settings.json").read_text()), out


def image_paths(folder: str) -> list[str]:
    return sorted(str(path) for path in Path(folder).rglob("*") if path.is_file())


def share(items: list[Any], worker: int, workers: int) -> list[Any]:
    """Return the contiguous part of one of several equal workers."""
    return items[len(items) * worker // workers : len(items) * (worker + 1) // workers]


class Results:
    """A Parquet file of `path` and `embedding`, flushed every 1,000 rows."""

    def __init__(self, file: Path, key: str = "path") -> None:
        self.file, self.key, self.writer = file, key, None
        self.keys: list[Any] = []
        self.embeddings: list[np.ndarray] = []

    def add(self, keys: list[Any], embeddings: np.ndarray | None) -> None:
        self.keys.extend(keys)
        if embeddings is not None:
            self.embeddings.append(embeddings)
        if len(self.keys) >= 1000:
            self.flush()

    def flush(self) -> None:
        columns: dict[str, Any] = {self.key: self.keys}
        if self.embeddings:
            vectors = np.concatenate(self.embeddings)
            flat = pa.array(vectors.ravel())
            columns["embedding"] = pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])
        table = pa.table(columns)
        self.writer = self.writer or pq.ParquetWriter(self.file, table.schema)
        self.writer.write_table(table)
        self.keys, self.embeddings = [], []

    def close(self) -> None:
        if self.keys:
            self.flush()
        if self.writer:
            self.writer.close()
