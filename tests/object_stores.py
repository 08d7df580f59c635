"""Stand-ins for the object stores of Google and Azure, on this machine: servers that speak their protocols."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

BUCKET = "bucket"
# The emulator takes no notice of the condition under which Google creates an object: that there is none.
GOOGLE = """
import sys
from http import HTTPStatus
from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

insert = objects.insert

def insert_where_it_may(request, response, storage, *args, **kwargs):
    if request.query.get("ifGenerationMatch") == ["0"]:
        try:
            storage.get_file_obj(request.params["bucket_name"], request.data["meta"]["name"])
            response.status = HTTPStatus.PRECONDITION_FAILED
            return None
        except NotFound:
            pass
    return insert(request, response, storage, *args, **kwargs)

objects.insert = insert_where_it_may
from gcp_storage_emulator.server import create_server
create_server("127.0.0.1", int(sys.argv[1]), in_memory=True, default_bucket=sys.argv[2]).run()
"""
# The account that every Azurite has, and no other store.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextlib.contextmanager
def google() -> Iterator[str]:
    """`gs://BUCKET` on a server of its own, named in the environment for as long as the body runs."""
    port = free_port()
    with (
        served([sys.executable, "-c", GOOGLE, str(port), BUCKET], port),
        _named("STORAGE_EMULATOR_HOST", _url(port)),
        _named("FSSPEC_GS_TOKEN", "anon"),  # else the driver looks for credentials, three seconds long
        _named("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false"),  # what a bucket is it asks by gRPC, which is not here
    ):
        yield f"gs://{BUCKET}"


@contextlib.contextmanager
def azure() -> Iterator[str]:
    """`abfs://BUCKET` on an Azurite, named in the environment while the body runs. Skips where there is none."""
    azurite = Path(sys.prefix) / "node_modules/.bin/azurite-blob"
    if not azurite.exists():
        pytest.skip(f"no {azurite}: npm install --prefix {sys.prefix} azurite")
    from azure.storage.blob import BlobServiceClient

    port, folder = free_port(), tempfile.mkdtemp(prefix="azurite-")
    command = [str(azurite), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", folder]
    account = f"AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={_url(port)}/{ACCOUNT};"
    account = f"DefaultEndpointsProtocol=http;{account}"
    with (
        served([*command, "--silent", "--skipApiVersionCheck", "--disableTelemetry"], port),
        _named("AZURE_STORAGE_CONNECTION_STRING", account),
    ):
        BlobServiceClient.from_connection_string(account).create_container(BUCKET)
        yield f"abfs://{BUCKET}"
    shutil.rmtree(folder)


def free_port() -> int:
    """A port of this machine that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _url(port: int) -> str:
    return f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def served(command: list[str], port: int | Path) -> Iterator[None]:
    """Run the command of a server for as long as the body runs, which begins when the port, or the socket, answers."""
    family, address = (socket.AF_UNIX, str(port)) if isinstance(port, Path) else (socket.AF_INET, ("127.0.0.1", port))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while server.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.socket(family) as probe:
                probe.settimeout(1)
                probe.connect(address)
                break
            time.sleep(0.1)
        else:
            pytest.fail(f"{command[0]} does not answer on port {port}")
        yield
    finally:
        server.terminate()
        try:
            server.wait(10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


@contextlib.contextmanager
def _named(variable: str, value: str) -> Iterator[None]:
    os.environ[variable] = value
    try:
        yield
    finally:
        del os.environ[variable]
