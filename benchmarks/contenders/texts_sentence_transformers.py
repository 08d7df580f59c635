"""sentence-transformers' `encode`, which sorts by length itself. A third argument `pool` runs it in several processes.

Its defaults are all threads in one process and batches of 32. `pool` starts a process per core, as its documentation
recommends for many texts.
"""

import os
import sys

import pyarrow.parquet as pq
from data import Results, settings

if __name__ == "__main__":
    told, out = settings()
    pool = sys.argv[3:] == ["pool"]
    if pool:
        os.environ["OMP_NUM_THREADS"] = "1"
    from sentence_transformers import SentenceTransformer

    table = pq.read_table(told["texts"])
    model = SentenceTransformer(told["model"], device=told.get("device", "cpu"))
    model.eval()
    devices = ["cpu"] * told["cpus"] if pool else None
    embeddings = model.encode(table["text"].to_pylist(), batch_size=32, show_progress_bar=False, device=devices)
    results = Results(out / "results.parquet", "id")
    results.add(table["id"].to_pylist(), embeddings)
    results.close()
