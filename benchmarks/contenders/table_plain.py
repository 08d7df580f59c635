"""pyarrow and torch in a loop: one process per core, each with its own share of the files."""

import sys
from multiprocessing import get_context
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from data import settings, share


def work(told: dict, out: str, worker: int) -> None:
    from mlp import FEATURES, MLP

    pa.set_cpu_count(1)
    model = MLP()
    for file in share(sorted(Path(told["table"]).glob("*.parquet")), worker, told["cpus"]):
        schema = pq.read_schema(file).append(pa.field("score", pa.float32()))
        with pq.ParquetWriter(Path(out) / file.name, schema) as writer:
            for batch in pq.ParquetFile(file).iter_batches(batch_size=16_384):
                score = model({name: batch[name].to_numpy() for name in FEATURES})["score"]
                writer.write_batch(batch.append_column("score", pa.array(score)))


if __name__ == "__main__":
    told, out = settings()
    processes = [
        get_context("spawn").Process(target=work, args=(told, str(out), worker)) for worker in range(told["cpus"])
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in processes))
