"""The filesystem of a URI, by fsspec, and what differs between filesystems.

fsspec serves all of them (by s3fs for S3). Unlike pyarrow's own filesystems, it lists ETags and fetches hundreds of
small objects concurrently. It also reads public buckets without credentials and can create an object only if it does
not exist. pyarrow reads and writes Parquet through it.
"""

import os
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.core import split_protocol, strip_protocol, url_to_fs
from fsspec.implementations.local import LocalFileSystem

from overnight.tasks.config.extras import missing
from overnight.tasks.config.proxies import THIS_MACHINE, leave_out_this_machine
from overnight.tasks.storage.credentials import GOOGLE, require_credentials
from overnight.tasks.storage.file_info import Entry, entry_of
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.list_local import local_entries
from overnight.tasks.storage.stores import Store, in_use

WEB = ("http", "https")
CONNECT_SECONDS = 30.0  # as aiohttp's default
WITHOUT_HOST = ("", "file", "s3", "s3a", "gs", "gcs", "hf", *WEB)  # one filesystem reads all URIs of such a protocol


def open_filesystem(
    uri: str, anonymous: bool = False, timeout_seconds: float | None = None
) -> tuple[fsspec.AbstractFileSystem, str]:
    """Return the filesystem of a URI, and the URI's path in it. `timeout_seconds` limits a web server's requests.

    Raise `JobError` for a missing driver, `ValueError` for an unknown protocol, `AccessDenied` without credentials.
    """
    protocol = protocol_of(uri)
    options: dict[str, Any] = {"use_listings_cache": False}
    if timeout_seconds and protocol in WEB:
        from aiohttp import ClientTimeout

        timeout = ClientTimeout(timeout_seconds, sock_connect=CONNECT_SECONDS)
        options["client_kwargs"] = {"timeout": timeout, "auto_decompress": False}  # `web_files.py` unpacks to a limit
    if anonymous and protocol in GOOGLE:
        options["token"] = "anon"
    elif anonymous:
        options["anon"] = True
    if protocol in ("s3", "s3a"):
        from overnight.tasks.storage.s3 import PatientS3

        options |= _s3_options(in_use().at(uri)[1] or Store.model_construct(), anonymous)
        if "?versionId=" in uri:
            options["version_aware"] = True
        return PatientS3(**options), strip_protocol(uri)
    try:
        fsspec.get_filesystem_class(protocol)
        if protocol in GOOGLE:
            from overnight.tasks.storage.google_requests import NotedRequests

            options["session_kwargs"] = {"trace_configs": [NotedRequests()]}
        if not anonymous:
            require_credentials(protocol)
        # Up to the first ::, because fsspec parses a file name that contains :: as a chain of filesystems.
        filesystem, _ = url_to_fs(uri.partition("::")[0], **options)
    except ImportError as error:
        raise missing(getattr(error.__cause__, "name", None) or protocol, f"{protocol}://") from error
    return filesystem, strip_protocol(uri)


def _s3_options(store: Store, anonymous: bool) -> dict[str, Any]:
    """Return the options of `PatientS3` for a place."""
    address = store.endpoint or s3_address()
    exempt_this_machine(address)
    # s3fs looks for the region of each bucket of AWS, unless an address or a region is known
    options: dict[str, Any] = {"cache_regions": not (address or store.region)}
    if store.endpoint:
        options["endpoint_url"] = store.endpoint
    if store.region:
        options["client_kwargs"] = {"region_name": store.region}
    if not anonymous:
        options |= store.model_dump(include={"profile", "role_arn"}, exclude_none=True)
    return options


def protocol_of(uri: str) -> str:
    """Return the protocol: `s3` for `s3://bucket/name`, `file` for a plain path."""
    return str(split_protocol(uri)[0] or "file")


def store_of(uri: str) -> str:
    """Return a name of the store of a URI, such as `s3` or `abfs://host`: one filesystem reads all URIs of a store."""
    protocol = protocol_of(uri) if uri else ""
    if prefix := in_use().at(uri)[0]:
        return f"s3://{prefix}"
    return protocol if protocol in WITHOUT_HOST else "/".join(uri.split("/", 3)[:3])


def is_local(filesystem: fsspec.AbstractFileSystem) -> bool:
    return isinstance(filesystem, LocalFileSystem)


def is_s3(filesystem: fsspec.AbstractFileSystem) -> bool:
    return hasattr(filesystem, "call_s3")


def is_web(filesystem: fsspec.AbstractFileSystem) -> bool:
    return bool({*WEB}.intersection(filesystem.protocol))


def s3_address() -> str:
    """Return the address of the S3 server that the environment names; empty for AWS's own."""
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or ""


def exempt_this_machine(address: str) -> None:
    """Add this machine to the environment's exceptions from its proxy, which cannot reach it, if `address` is here."""
    if urlsplit(address).hostname in THIS_MACHINE:
        leave_out_this_machine()


def entries(filesystem: fsspec.AbstractFileSystem, root: str, pattern: Pattern | None = None) -> Iterator[Entry]:
    """Yield an `Entry` for each file below `root`, in the order of full names, or for `root` itself if it is a file."""
    if is_local(filesystem):
        return local_entries(root or "/", pattern)
    # S3 does not list a directory bucket (S3 Express One Zone) in order.
    if is_s3(filesystem) and not root.split("/", 1)[0].endswith("--x-s3"):
        from overnight.tasks.storage.list_s3 import s3_entries  # here, because it imports s3fs

        return s3_entries(filesystem, root, pattern.beginning if pattern else "")
    return _found(filesystem, root)


def _found(filesystem: fsspec.AbstractFileSystem, root: str) -> Iterator[Entry]:
    files = filesystem.find(root, detail=True)
    if not isinstance(files, dict):  # for a file, Azure's driver (adlfs 2026.8) returns only a list with its name
        files = {name: filesystem.info(name) for name in files}
    for name, info in sorted(files.items()):
        if info.get("size") is None:  # of a web server
            info.update(filesystem.info(name))
        yield entry_of(name, info)


def require_bucket(filesystem: fsspec.AbstractFileSystem, root: str) -> None:
    """Raise the store's error if the bucket of `root` is missing or forbidden."""
    if not is_local(filesystem) and not is_hub(filesystem):
        filesystem.ls(root.split("/", 1)[0])


def is_hub(filesystem: fsspec.AbstractFileSystem) -> bool:
    return filesystem.protocol == "hf"


def at_commit(filesystem: Any, path: str) -> str:
    """Return a path on the Hugging Face Hub with the current commit of its branch, which never changes.

    The Hub's driver (huggingface_hub 2.4) caches its listings, but reads the current content of a name.
    """
    from huggingface_hub import HfApi

    filesystem.invalidate_cache()
    parts = filesystem.resolve_path(path)
    if not hasattr(parts, "repo_id"):  # below `buckets/`
        return path
    api = HfApi(endpoint=filesystem.endpoint, token=filesystem.token)
    commit = api.repo_info(parts.repo_id, revision=parts.revision, repo_type=parts.repo_type).sha
    return str(type(parts)(parts.repo_type, parts.repo_id, commit, parts.path_in_repo).unresolve())
