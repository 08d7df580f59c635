"""Google's and Azure's stores without credentials: an error within seconds that says what is missing."""

import subprocess
import sys
import time
from pathlib import Path

import google.auth
import pytest
from azure.identity import DefaultAzureCredential
from fsspec.config import conf

from overnight.tasks.errors import AccessDenied
from overnight.tasks.storage import credentials
from overnight.tasks.storage.location import Location

PLACES = {
    "gs://bucket/a": "GOOGLE_APPLICATION_CREDENTIALS",
    "abfs://box@account.dfs.core.windows.net/a": "AZURE_STORAGE",
}


@pytest.fixture(autouse=True)
def _nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """No credentials in the environment, none found before, and a metadata server that never answers."""
    for name in ("STORAGE_EMULATOR_HOST", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    for protocol in (*credentials.GOOGLE, *credentials.AZURE):
        monkeypatch.delitem(conf, protocol, raising=False)
    monkeypatch.setattr(credentials, "_found", set())
    monkeypatch.setattr(credentials, "WAIT_SECONDS", 0.2)
    monkeypatch.setattr(google.auth, "default", lambda **_: time.sleep(60))
    monkeypatch.setattr(DefaultAzureCredential, "get_token", lambda *_: time.sleep(60))


@pytest.mark.parametrize("place", PLACES)
def test_credentials_are_not_waited_for_long_and_what_is_missing_is_named(place: str) -> None:
    began = time.monotonic()
    with pytest.raises(AccessDenied, match=PLACES[place]):
        list(Location(place).files())
    assert time.monotonic() - began < 30


def test_a_key_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(credentials, "_found", set())
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    monkeypatch.delitem(conf, "gs", raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/nonexistent/key.json")
    with pytest.raises(AccessDenied, match=r"/nonexistent/key\.json was not found"):
        Location("gs://bucket/a").exists()


@pytest.mark.parametrize("place", PLACES)
def test_a_public_bucket_needs_none(place: str) -> None:
    filesystem, path = Location(place, anonymous=True).open_filesystem()
    assert path.endswith("/a")
    assert filesystem.storage_options.get("token") == "anon" or filesystem.storage_options.get("anon")


@pytest.mark.parametrize(
    ("place", "variable", "value"),
    [
        ("gs://bucket/a", "STORAGE_EMULATOR_HOST", "http://127.0.0.1:9"),
        ("abfs://box/a", "AZURE_STORAGE_CONNECTION_STRING", "any"),
    ],
)
def test_what_the_environment_says_is_left_to_the_library(
    place: str, variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    credentials.require_credentials(place.partition(":")[0])


def test_a_look_that_hangs_does_not_hold_up_the_end_of_the_process() -> None:
    code = """
import time, google.auth
from overnight.tasks.storage import credentials
google.auth.default = lambda **_: time.sleep(600)
credentials.WAIT_SECONDS = 0.1
try:
    credentials.require_credentials("gs")
except Exception as error:
    print(type(error).__name__)
"""
    environment = {"PYTHONPATH": str(Path(__file__).resolve().parents[3]), "PATH": "/usr/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=50, env=environment
    )
    assert done.stdout.strip() == "AccessDenied", done.stderr
