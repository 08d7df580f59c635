"""URIs and options for libraries on Rust's object_store (deltalake, Lance)."""

import os

from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location


def object_store_uri(place: Location) -> str:
    """Return the URI of a place for libraries on Rust's object_store, or the plain path of a local place."""
    filesystem, path = place.open_filesystem()
    return path if is_local(filesystem) else place.uri


def storage_options(anonymous: bool = False) -> dict[str, str]:
    """Return the options for libraries on Rust's object_store that these do not read from the environment.

    They are the address of an S3 server and, if `anonymous`, requests without a signature.
    """
    options = {"aws_skip_signature": "true", "google_skip_signature": "true"} if anonymous else {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        options |= {"aws_endpoint_url": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return options
