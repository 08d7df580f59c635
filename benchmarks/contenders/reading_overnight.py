"""Overnight without a model: small images are read and decoded, and what is written is which rows there were."""

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    run(
        out,
        {
            "name": "benchmark-reading",
            "source": {"kind": "images", "path": told["images"]},
            "preprocess": [{"kind": "decode_image"}],
        },
    )
