"""Overnight without a model: it reads and decodes small images, and writes the names of the rows."""

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
