"""The limit: plain processes, one per core, without a framework. `python images_plain.py DATA OUT [decode|model|both]`.

`decode` decodes every file without a model. `model` runs the model on this number of decoded images; it writes no
embeddings, because it repeats the same 64 images. `both` is the whole work: decode, then model.
"""

import sys
from multiprocessing import get_context

from data import Results, image_paths, settings, share

BATCH = 16


def work(told: dict, out: str, what: str, worker: int) -> None:
    from pathlib import Path

    import cv2  # noqa: F401  loaded before the clock of the steady rate, as in the others
    from fast_decode import decode_files
    from progress import note

    paths = share(image_paths(told["images"]), worker, told["cpus"])
    results = Results(Path(out) / f"{worker}.parquet")
    if what != "decode":
        from vision_model import VisionModel

        model = VisionModel(told["model"])
    if what == "model":
        ready = decode_files(paths[:64], told["size"])
    for start in range(0, len(paths), BATCH):
        batch = paths[start : start + BATCH]
        if what == "model":
            images = ready[start % 64 : start % 64 + len(batch)]
            model(images if len(images) == len(batch) else ready[: len(batch)])
            results.add(batch, None)
        else:
            images = decode_files(batch, told["size"])
            results.add(batch, model(images) if what == "both" else None)
            if what == "decode":
                note(len(batch))
    results.close()


if __name__ == "__main__":
    told, out = settings()
    what = sys.argv[3] if len(sys.argv) > 3 else "both"
    processes = [
        get_context("spawn").Process(target=work, args=(told, str(out), what, worker)) for worker in range(told["cpus"])
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(max(process.exitcode or 0 for process in processes))
