"""Overnight as its users run it: a job file and `overnight run`.

`python images_overnight.py DATA OUT [DECODE [PREPARE]]`: the settings of the step and the predictor as in a job file.
Without an argument, the job file has no such key.
"""

import sys

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    resize = {"kind": "resize_image", "size": told["size"]}
    if len(sys.argv) > 3:
        resize["decode"] = sys.argv[3]
    model = {"kind": "image_embedding", "model": told["model"], **told.get("overnight_model", {})}
    if len(sys.argv) > 4:
        model["placement"] = sys.argv[4]
    run(
        out,
        {
            "name": "benchmark-images",
            "source": {"kind": "images", "path": told["images"]},
            "preprocess": [resize],
            "inference": [model],
        },
    )
