"""Overnight's text embedding. `python texts_overnight.py DATA OUT [float32|bfloat16]`, or as DATA names it."""

import sys

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    model = {"kind": "text_embedding", "model": told["model"], "text_column": "text"}
    model |= {"dtype": sys.argv[3]} if len(sys.argv) > 3 else told.get("overnight_model", {})
    run(out, {"name": "benchmark-texts", "source": {"kind": "parquet", "path": told["texts"]}, "inference": [model]})
