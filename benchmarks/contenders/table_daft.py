"""Daft's native runner: `read_parquet`, a class UDF with a batch method, `write_parquet`."""

import daft
import numpy as np
from daft import DataType, col
from data import settings
from mlp import FEATURES, MLP


def build(told: dict) -> daft.DataFrame:
    @daft.cls(max_concurrency=told["cpus"])
    class Predict:
        def __init__(self) -> None:
            self.model = MLP()

        @daft.method.batch(return_dtype=DataType.float32(), batch_size=16_384)
        def __call__(self, *columns: daft.Series) -> np.ndarray:
            batch = {
                name: column.to_arrow().to_numpy(zero_copy_only=False)
                for name, column in zip(FEATURES, columns, strict=True)
            }
            return self.model(batch)["score"]

    table = daft.read_parquet(told["table"] + "/*.parquet")
    return table.with_column("score", Predict()(*(col(name) for name in FEATURES)))


if __name__ == "__main__":
    told, out = settings()
    build(told).write_parquet(str(out))
