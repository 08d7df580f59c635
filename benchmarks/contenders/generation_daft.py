"""Daft's native runner with transformers in a class UDF, as in its documentation on models."""

import daft
from daft import DataType, col
from daft_workers import workers
from data import settings
from generation import Generate


def build(told: dict) -> daft.DataFrame:
    @daft.cls(**workers(told))
    class Continue:
        def __init__(self) -> None:
            self.generate = Generate(told)

        @daft.method.batch(return_dtype=DataType.string(), batch_size=32)
        def __call__(self, prompts: daft.Series) -> list:
            return self.generate(prompts.to_pylist())

    rows = daft.read_parquet(told["texts"])
    return rows.select("id", Continue()(col("text")).alias("generated_text"))


if __name__ == "__main__":
    told, out = settings()
    build(told).write_parquet(str(out))
