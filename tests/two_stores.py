"""Two S3 servers, each of which knows one key only, and profiles with these keys in an AWS configuration file."""

import contextlib
import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from overnight.tasks.storage.stores import Store
from tests import object_stores

SERVER = str(Path(__file__).with_name("s3_server.py"))
PROFILE = "[profile {name}]\naws_access_key_id = {name}-key\naws_secret_access_key = secret\nregion = us-east-1\n"


@dataclass(frozen=True)
class TwoStores:
    """A bucket on each server, and the settings of the job's key `storage` for both."""

    raw: str  # s3://BUCKET
    out: str
    raw_endpoint: str
    out_endpoint: str

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        return {
            self.raw: {"endpoint": self.raw_endpoint, "profile": "raw"},
            self.out: {"endpoint": self.out_endpoint, "profile": "out"},
        }

    @property
    def stores(self) -> dict[str, Store]:
        return {place: Store(**settings) for place, settings in self.settings.items()}


@contextlib.contextmanager
def two_stores(folder: Path) -> Iterator[TwoStores]:
    """Run both servers while the body runs, with `AWS_CONFIG_FILE` set to a file in `folder`."""
    config = folder / "aws-config"
    config.write_text(PROFILE.format(name="raw") + PROFILE.format(name="out"))
    before = os.environ.get("AWS_CONFIG_FILE")
    os.environ["AWS_CONFIG_FILE"] = str(config)
    try:
        with server("raw-key") as raw, server("out-key") as out:
            yield TwoStores(_bucket(raw, "raw"), _bucket(out, "out"), raw, out)
    finally:
        os.environ.pop("AWS_CONFIG_FILE")
        if before:
            os.environ["AWS_CONFIG_FILE"] = before


@contextlib.contextmanager
def server(key: str) -> Iterator[str]:
    """Run an S3 server that refuses all keys but those that begin with `key`. Yield its address."""
    port = object_stores.free_port()
    with object_stores.served([sys.executable, SERVER, str(port), key], port):
        yield f"http://127.0.0.1:{port}"


def _bucket(endpoint: str, profile: str) -> str:
    import boto3

    name = f"{profile}-{uuid.uuid4().hex[:8]}"
    boto3.Session(profile_name=profile).client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    return f"s3://{name}"
