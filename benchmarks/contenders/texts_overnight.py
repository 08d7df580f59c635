"""Overnight's text embedding. `python texts_overnight.py DATA OUT [float32|bfloat16]`."""

import sys

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    model = {"kind": "text_embedding", "model": told["model"], "text_column": "text", "dtype": sys.argv[3]}
    run(
        out,
        {"name": "benchmark-texts", "source": {"kind": "parquet", "path": told["texts"]}, "inference": [model]},
    )
