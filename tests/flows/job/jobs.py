"""Job files of the tests, and what is said about a wrong one."""

from pathlib import Path

import pytest

from overnight.flows.job.loading import load_job
from overnight.tasks.errors import JobError

SMALL = """
name: doggos
source: {kind: images, path: "s3://bucket/raw/date={partition}/"}
sink: {kind: parquet, path: "s3://bucket/predictions"}
"""
WHOLE = """
name: doggos
source:     {kind: images, path: "s3://bucket/raw/date={partition}/", label_from: parent}
shuffle:    {kind: files, seed: 0}
preprocess: [{kind: resize_image, size: 224}]
inference:
  - {kind: image_embedding, name: clip, model: openai/clip-vit-base-patch32, num_gpus: 1, workers: [1, 4]}
  - {kind: python, name: resnet, target: "my_models:ResNet", kwargs: {depth: 20}, batch_size: 256}
checks:     {min_rows: 1, max_quarantined: 0.01}
sink:       {kind: parquet, path: "s3://bucket/predictions/doggos"}
schedule:   {cron: "0 2 * * *", timezone: UTC, offset_days: -1, catch_up: latest, lookback_days: 0, deadline: "06:00"}
"""


def complaint(path: Path, *overrides: str) -> str:
    with pytest.raises(JobError) as caught:
        load_job(path, overrides)
    message = str(caught.value)
    assert "pydantic" not in message
    assert "tagged" not in message
    return message
