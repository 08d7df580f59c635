"""transformers by hand, with batches of 32 in the order of the texts: one process per core, one thread each."""

import sys
from multiprocessing import get_context
from pathlib import Path

import pyarrow.parquet as pq
from data import Results, settings, share

BATCH = 32


def work(told: dict, out: str, worker: int) -> None:
    import torch
    from progress import note
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer, model = AutoTokenizer.from_pretrained(told["model"]), AutoModel.from_pretrained(told["model"]).eval()
    rows = share(pq.read_table(told["texts"]).to_pylist(), worker, told["cpus"])
    results = Results(Path(out) / f"{worker}.parquet", "id")
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        encoded = tokenizer(
            [row["text"] for row in batch],
            padding=True,
            truncation=True,
            max_length=told["max_length"],
            return_tensors="pt",
        )
        with torch.inference_mode():
            hidden, mask = model(**encoded).last_hidden_state, encoded["attention_mask"].unsqueeze(-1)
            pooled = torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))
        results.add([row["id"] for row in batch], pooled.numpy())
        note(len(batch))
    results.close()


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
