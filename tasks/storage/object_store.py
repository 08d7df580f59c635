"""URIs and options for libraries on Rust's object_store (deltalake, Lance)."""

import os

from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location


def object_store_uri(place: Location) -> str:
    filesystem, path = place.open_filesystem()
    return path if is_local(filesystem) else place.uri


def storage_options(anonymous: bool = False) -> dict[str, str]:
    """Return options of object_store that it does not read from the environment itself.

    They are the address of an S3 server and, if `anonymous`, requests without a signature.
    """
    options = {"aws_skip_signature": "true", "google_skip_signature": "true"} if anonymous else {}
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    if endpoint:
        options |= {"aws_endpoint_url": endpoint, "allow_http": str(endpoint.startswith("http://")).lower()}
    return options
