"""Measure what a memory saves: `python benchmarks/memory.py [--rows 200] [--width 512] [--layers 12]`.

It decodes photos and runs two CLIP models of the same cost over them, as the workers of a job do: without a memory,
with an empty one, and after a change of the second model. It prints the CPU seconds of each, and checks that the last
result equals one from nothing.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from made_photos import write_clip, write_photo

from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.image_embedding import ImageEmbedding
from overnight.tasks.infer.worker import Worker
from overnight.tasks.memory.keys import model_key
from overnight.tasks.memory.made_rows import store
from overnight.tasks.memory.settings import ModelMemory
from overnight.tasks.preprocess.run_steps import Steps
from overnight.tasks.preprocess.steps.resize_image import ResizeImage
from overnight.tasks.rows import blocks, rebatch
from overnight.tasks.state.run import Run
from overnight.tasks.storage.location import Location


def photos(folder: Path, rows: int) -> pa.Table:
    """Return a block of JPEG files."""
    random = np.random.default_rng(0)
    contents, file = [], folder / "photo.jpg"
    for _ in range(rows):
        write_photo(file, random)
        contents.append(file.read_bytes())
    names = [f"{row}.jpg" for row in range(rows)]
    return blocks.with_hidden(pa.table({"row_id": names, "image": contents}), np.arange(rows), np.zeros(rows, np.int64))


def cpu_seconds(folder: Path, run: Run, block: pa.Table, models: list[str], has_memory: bool) -> tuple[float, pa.Table]:
    """Return the CPU seconds of the steps, the models and the memory, without the load of models, and the result."""
    workers = []
    for number, name in enumerate(models):
        memory = None
        if has_memory:
            memory = ModelMemory(str(folder / "memory"), model_key({"model": name}, {}), name, 1)
        model = ImageEmbedding(name=f"model_{number}", model=str(folder / name), batch_size=16)
        worker = Worker(Link(model, f"{model.name}_", read=("image",), memory=memory), run)
        if memory is None or worker.memory.is_empty:
            list(worker.on([warm_up(run, block)], None))
        workers.append(worker)
    start = time.process_time()
    pieces = Steps((ResizeImage(size=224),)).load(run).on([block], None)
    for worker in workers:
        pieces = worker.on(pieces, None)
    result = rebatch.joined(pieces)
    store(result, f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{time.time_ns()}")
    seconds = time.process_time() - start
    embeddings = [f"model_{number}_embedding" for number in range(len(models))]
    return seconds, blocks.live_rows(result)[0].select(["row_id", *embeddings])


def warm_up(run: Run, block: pa.Table) -> pa.Table:
    return rebatch.joined(Steps((ResizeImage(size=224),)).load(run).on([block[:1]], None))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--layers", type=int, default=12)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, model in enumerate(("first", "second", "changed")):
            write_clip(folder / model, arguments.width, arguments.layers, seed)
        places = {"state": Location(f"{name}/state"), "sink": Location(f"{name}/out")}
        run = Run(
            "job", "all", "date", generation="g", attempt="a", fingerprint="f", ingredients={}, started_at="", **places
        )
        block = photos(folder, arguments.rows)
        without, _ = cpu_seconds(folder, run, block, ["first", "second"], False)
        empty, _ = cpu_seconds(folder, run, block, ["first", "second"], True)
        changed, result = cpu_seconds(folder, run, block, ["first", "changed"], True)
        same, _ = cpu_seconds(folder, run, block, ["first", "changed"], True)
        _, fresh = cpu_seconds(folder, run, block, ["first", "changed"], False)
        print(json.dumps({
            "rows": arguments.rows,
            "cpu_seconds_without_memory": round(without, 2),
            "with_an_empty_memory": round(empty / without, 3),
            "one_of_two_models_changed": round(changed / without, 3),
            "nothing_changed": round(same / without, 3),
            "equal_to_a_run_from_nothing": result.equals(fresh),
        }, indent=2))  # fmt: skip


if __name__ == "__main__":
    main()
