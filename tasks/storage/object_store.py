"""URIs and options for libraries on Rust's object_store (deltalake, Lance)."""

import configparser
import contextlib
import os
from pathlib import Path

from overnight.tasks.storage.filesystems import exempt_this_machine, is_local, s3_address
from overnight.tasks.storage.location import Location

KEYS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")  # in the file, and as options


def object_store_uri(location: Location) -> str:
    """Return the URI of a location for these libraries, or the plain path of a local one."""
    filesystem, path = location.open_filesystem()
    return path if is_local(filesystem) else location.uri


def storage_options(anonymous: bool = False) -> dict[str, str]:
    """Return the options that these libraries do not read from the environment."""
    options = {}
    if anonymous:
        options = {"aws_skip_signature": "true", "google_skip_signature": "true"}
    if endpoint := s3_address():
        exempt_this_machine(endpoint)
        options |= {"aws_endpoint_url": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return options


def delta_options(anonymous: bool = False) -> dict[str, str]:
    """Return `storage_options`, and the keys in AWS's shared credentials file, which only deltalake does not read."""
    options = storage_options(anonymous)
    if anonymous or os.environ.get("AWS_ACCESS_KEY_ID"):
        return options
    file = Path(os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials").expanduser()
    profiles = configparser.ConfigParser(interpolation=None)
    with contextlib.suppress(configparser.Error):  # its message has the wrong line, which may be a key
        profiles.read(file)
    profile = os.environ.get("AWS_PROFILE") or "default"
    return options | {name: profiles[profile][name] for name in KEYS if profiles.has_option(profile, name)}
