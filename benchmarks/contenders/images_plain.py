"""The limit: plain processes, one per core, without a framework.

    python images_plain.py DATA OUT [decode|model|both [fast|exact]]

`decode` decodes every file without a model. `model` runs the model on this number of decoded images; it writes no
embeddings, because it repeats the same 64 images. `both` is the whole work: decode, then model. `fast` and `exact`
decode as Overnight does with this setting `decode`, otherwise `fast_decode.py` does.
"""

import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from data import Results, image_paths, settings, share

BATCH = 16


def decoder(how: str, size: int) -> Callable[[list[str]], np.ndarray]:
    import cv2  # before the clock of the steady rate, as in the others

    if how == "others":
        from fast_decode import decode_files

        return lambda paths: decode_files(paths, size)
    import pyarrow as pa

    from overnight.tasks.preprocess.steps.resize_image import ResizeImage

    resize = ResizeImage(size=size, decode=how).build()
    cv2.setNumThreads(1)
    return lambda paths: resize(pa.table({"image": [Path(path).read_bytes() for path in paths]})).columns["image"]


def work(told: dict, out: str, what: str, how: str, worker: int) -> None:
    from progress import note

    decode_files = decoder(how, told["size"])

    paths = share(image_paths(told["images"]), worker, told["cpus"])
    results = Results(Path(out) / f"{worker}.parquet")
    if what != "decode":
        from vision_model import VisionModel

        model = VisionModel(told["model"])
    if what == "model":
        ready = decode_files(paths[:64])
    for start in range(0, len(paths), BATCH):
        batch = paths[start : start + BATCH]
        if what == "model":
            images = ready[start % 64 : start % 64 + len(batch)]
            model(images if len(images) == len(batch) else ready[: len(batch)])
            results.add(batch, None)
        else:
            images = decode_files(batch)
            results.add(batch, model(images) if what == "both" else None)
            if what == "decode":
                note(len(batch))
    results.close()


if __name__ == "__main__":
    told, out = settings()
    what, how = [*sys.argv[3:], *("both", "others")[len(sys.argv) - 3 :]]
    processes = [
        get_context("spawn").Process(target=work, args=(told, str(out), what, how, worker))
        for worker in range(told["cpus"])
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in processes))
