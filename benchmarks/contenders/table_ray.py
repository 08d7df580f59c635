"""Ray Data by hand: `read_parquet`, a class that keeps the model, `write_parquet`; batches as views of the blocks."""

import ray
from data import settings


class Predict:
    def __init__(self) -> None:
        from mlp import MLP

        self.model = MLP()

    def __call__(self, batch: dict) -> dict:
        return {**batch, **self.model(batch)}


if __name__ == "__main__":
    told, out = settings()
    ray.init("local", include_dashboard=False, log_to_driver=False)
    ds = ray.data.read_parquet(told["table"])
    # Half a CPU per actor: reads and writes need the other half, and the scores are the smallest part of the work.
    ds = ds.map_batches(Predict, concurrency=told["cpus"], num_cpus=0.5, batch_size=16_384, zero_copy_batch=True)
    ds.write_parquet(str(out))
