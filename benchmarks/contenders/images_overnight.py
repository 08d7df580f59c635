"""Overnight as its users run it: a job file and `overnight run`. `python images_overnight.py DATA OUT [fast|exact]`.

The third argument is `decode` of the step `resize_image`; without it the job leaves that key out.
"""

import sys

from data import settings
from overnight_job import run

if __name__ == "__main__":
    told, out = settings()
    resize = {"kind": "resize_image", "size": told["size"]}
    if len(sys.argv) > 3:
        resize["decode"] = sys.argv[3]
    run(
        out,
        {
            "name": "benchmark-images",
            "source": {"kind": "images", "path": told["images"]},
            "preprocess": [resize],
            "inference": [{"kind": "image_embedding", "model": told["model"], **told.get("overnight_model", {})}],
        },
    )
