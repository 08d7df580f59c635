"""An S3 server that fails as a test says, and a bucket on it."""

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from overnight.tasks.storage.location import Location
from overnight.tasks.storage.s3 import PatientS3
from tests.tasks.faulty_s3 import FaultyS3, faulty_s3


@pytest.fixture
def store(s3: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyS3]:
    """The way to the S3 server, which fails as the test says; four seconds of patience."""
    with faulty_s3(os.environ["AWS_ENDPOINT_URL"]) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL", store.url)
        monkeypatch.setenv("OVERNIGHT_STORAGE_RETRY_SECONDS", "4")
        PatientS3.clear_instance_cache()
        yield store
        PatientS3.clear_instance_cache()


@pytest.fixture
def place(s3: Any) -> Location:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    return Location(f"s3://{bucket}/deep")
