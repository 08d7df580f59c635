"""Overnight with a model of the user's own, `kind: python`."""

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    run(
        out,
        {
            "name": "benchmark-table",
            "source": {"kind": "parquet", "path": told["table"]},
            "inference": [{"kind": "python", "target": "mlp:MLP", "batch_size": 16_384}],
        },
    )
