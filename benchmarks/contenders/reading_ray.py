"""Ray Data's own reader of image files, `read_images`, with its defaults; it writes the names of the rows."""

import ray
from data import settings


def noted(batch: dict) -> dict:
    from progress import note

    note(len(batch["path"]))
    return {"path": batch["path"]}


if __name__ == "__main__":
    told, out = settings()
    ray.init("local", include_dashboard=False, log_to_driver=False)
    ray.data.read_images(told["images"], include_paths=True, mode="RGB").map_batches(noted).write_parquet(str(out))
