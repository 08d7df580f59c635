"""URIs and options for libraries that have S3 clients of their own: deltalake, Lance, pyiceberg."""

import configparser
import contextlib
import os
import time
from pathlib import Path
from typing import Any

from overnight.tasks.storage.filesystems import exempt_this_machine, is_local, open_filesystem, s3_address
from overnight.tasks.storage.location import Location
from overnight.tasks.storage.stores import in_use

KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")  # in the file, and as options
KEYS_SECONDS = 300  # botocore renews the keys of a role ten minutes before they expire
ICEBERG = {
    "aws_endpoint_url": "s3.endpoint",
    "aws_region": "s3.region",
    "aws_access_key_id": "s3.access-key-id",
    "aws_secret_access_key": "s3.secret-access-key",
    "aws_session_token": "s3.session-token",
}


def object_store_uri(location: Location) -> str:
    """Return the URI of a location for these libraries, or the plain path of a local one."""
    filesystem, path = location.open_filesystem()
    return path if is_local(filesystem) else location.uri


def storage_options(uri: str, anonymous: bool = False) -> dict[str, str]:
    """Return the options for a URI that libraries on Rust's object_store do not read from the environment."""
    options = {}
    if anonymous:
        options = {"aws_skip_signature": "true", "google_skip_signature": "true"}
    if in_use().at(uri)[1]:
        return options | _settings_of_store(uri, anonymous)
    if endpoint := s3_address():
        exempt_this_machine(endpoint)
        options |= {"aws_endpoint_url": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return options


def delta_options(uri: str, anonymous: bool = False) -> dict[str, str]:
    """Return `storage_options`, and the keys in AWS's shared credentials file, which only deltalake does not read."""
    options = storage_options(uri, anonymous)
    if anonymous or in_use().at(uri)[1] or os.environ.get("AWS_ACCESS_KEY_ID"):
        return options
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    profiles = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error):  # its message has the wrong line, which may be a key
        profiles.read(file)
    profile = os.environ.get("AWS_PROFILE") or "default"
    return options | {name: profiles[profile][name] for name in KEYS if profiles.has_option(profile, name)}


def iceberg_properties(uri: str) -> dict[str, str]:
    """Return pyiceberg's properties for a URI that it does not read from the environment."""
    if in_use().at(uri)[1]:
        options = _settings_of_store(uri, anonymous=False)
    else:
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        options = {"aws_endpoint_url": s3_address(), "aws_region": region or ""}
    return {ICEBERG[name]: value for name, value in options.items() if value and name in ICEBERG}


def kept_for(uri: str) -> tuple[object, ...]:
    """Return a key for a client that a process keeps: another one for other settings, and when keys may expire."""
    prefix, store = in_use().at(uri)
    return (prefix, store, int(time.monotonic() // KEYS_SECONDS)) if store else ()


def _settings_of_store(uri: str, anonymous: bool) -> dict[str, str]:
    """Return address, region and current keys of a place that the job's `storage` names."""
    filesystem: Any = open_filesystem(uri, anonymous)[0]
    client = filesystem.client_of(uri.partition("://")[2].partition("/")[0]).meta
    address = client.endpoint_url
    options = {"aws_endpoint_url": address, "allow_http": str(address.startswith("http://")).lower()}
    options["aws_region"] = client.region_name or "us-east-1"
    if anonymous:
        return options
    key, secret, token = filesystem.ask_for_credentials().values()
    return options | {name: value for name, value in zip(KEYS, (key, secret, token), strict=True) if value}
