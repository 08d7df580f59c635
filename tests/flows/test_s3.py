"""The same job on S3 over real HTTP: `s3://` paths only, credentials from the environment."""

import io
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import InputError
from tests.flows.conftest import RunJob


@pytest.fixture
def bucket(s3: Any) -> str:
    name = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=name)
    return name


def job(bucket: str) -> dict[str, Any]:
    return {
        "name": "pictures",
        "source": {"kind": "images", "path": f"s3://{bucket}/raw/date={{partition}}/", "label_from": "parent"},
        "preprocess": [{"kind": "resize_image", "size": 6}],
        "inference": [{"kind": "python", "target": "s3_test_models:Mean"}],
        "sink": {"kind": "parquet", "path": f"s3://{bucket}/out", "grace_seconds": 0},
    }


@pytest.fixture(autouse=True)
def _model() -> None:
    from tests.conftest import WORKER_PATH

    (WORKER_PATH / "s3_test_models.py").write_text(
        "class Mean:\n    def __call__(self, batch):\n        return {'mean': batch['image'].mean(axis=(1, 2, 3))}\n"
    )


@pytest.mark.slow
def test_a_partition_goes_from_s3_to_s3_and_is_replaced(run_job: RunJob, s3: Any, bucket: str, pictures: Path) -> None:
    for file in pictures.rglob("*.png"):
        s3.upload_file(str(file), bucket, f"raw/date=2026-01-02/{file.relative_to(pictures)}")
    first = run_job(job(bucket), "2026-01-02")
    keys = {item["Key"] for item in s3.list_objects_v2(Bucket=bucket, Prefix="out/")["Contents"]}
    assert {key for key in keys if key.startswith("out/date=")} == {f"out/{file}" for file in first["files"]}
    body = s3.get_object(Bucket=bucket, Key=f"out/{first['files'][0]}")["Body"].read()
    rows = {row["row_id"]: row for row in pq.read_table(io.BytesIO(body)).to_pylist()}
    assert {name: row["mean"] for name, row in rows.items()} == {
        f"{'cat' if i % 2 else 'dog'}/{i:02d}.png": i * 20.0 for i in range(12)
    }
    assert rows["cat/01.png"]["uri"] == f"s3://{bucket}/raw/date=2026-01-02/cat/01.png"
    receipt = s3.get_object(Bucket=bucket, Key="out/_overnight/date=2026-01-02/receipt.json")["Body"].read()
    assert json.loads(receipt) == first
    second = run_job(job(bucket), "2026-01-02", force=True)
    listed = {item["Key"] for item in s3.list_objects_v2(Bucket=bucket, Prefix="out/date=")["Contents"]}
    assert listed == {f"out/{file}" for file in second["files"]}
    assert listed.isdisjoint(f"out/{file}" for file in first["files"])


def test_a_bucket_that_is_not_there_is_named(run_job: RunJob, s3: Any, bucket: str) -> None:
    broken = job(bucket)
    broken["source"]["path"] = "s3://no-such-bucket-here/raw/date={partition}/"
    with pytest.raises(InputError, match="no-such-bucket-here"):
        run_job(broken, "2026-01-02")
