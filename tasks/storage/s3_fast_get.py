"""Whole objects from S3 by a quicker client than s3fs: obstore, which is Rust, takes a sixth of the CPU time a request.

Many threads ask for an object each, and wait without Python's lock: asyncio costs as much again as the request.

It asks once. What it cannot fetch, for whatever reason, is left to s3fs, which waits for storage that is gone and says
what is wrong. Address, region and credentials are those of s3fs's own client, so that one configuration serves both.
"""

import contextlib
import functools
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore.exceptions import PreconditionError
from obstore.store import S3Store

if TYPE_CHECKING:
    from obstore.store import ClientConfig

REQUESTS_AT_ONCE = 128
REST_SECONDS = 30.0  # after a failure that tells of the server or of the way to it
TIMEOUTS: "ClientConfig" = {"timeout": "30s", "connect_timeout": "5s"}
ASK_AGAIN = timedelta(minutes=5)  # for credentials; botocore knows when they have to be new ones


class QuickGets:
    """Gets of one bucket. client: s3fs's (aiobotocore). ask: for its credentials; None for a bucket that is public."""

    def __init__(self, bucket: str, client: Any, ask: Callable[[], Any] | None) -> None:
        address = client.meta.endpoint_url

        def credentials() -> dict[str, Any]:
            found = ask()  # type: ignore[misc] # it is there
            known = {"access_key_id": found.access_key, "secret_access_key": found.secret_key, "token": found.token}
            return {**known, "expires_at": datetime.now(UTC) + ASK_AGAIN}

        self._store = S3Store(
            bucket,
            endpoint=address,
            region=client.meta.region_name or "us-east-1",
            client_options={**TIMEOUTS, "allow_http": address.startswith("http://")},
            retry_config={"max_retries": 0},
            **({"credential_provider": credentials} if ask else {"skip_signature": True}),
        )
        self._rests_until = 0.0

    def get(self, key: str, etag: str) -> bytes | None:
        """The object of this ETag (any, where it is empty); None where s3fs is to ask."""
        if time.monotonic() < self._rests_until:
            return None
        try:
            answer = obstore.get(self._store, key, options={"if_match": f'"{etag}"'} if etag else None)
            found = (answer.meta["e_tag"] or "").strip('"')
            return None if etag and found != etag else bytes(answer.bytes())
        except (FileNotFoundError, PreconditionError):  # of the object, and nothing of the server
            return None
        except Exception:  # of many kinds, a key that its paths do not allow among them
            self._rests_until = time.monotonic() + REST_SECONDS
            return None


def quick_gets(bucket: str, client: Any, ask: Callable[[], Any] | None) -> QuickGets | None:
    """None where obstore does not understand the client's settings."""
    with contextlib.suppress(Exception):
        return QuickGets(bucket, client, ask)
    return None


@functools.cache
def threads() -> ThreadPoolExecutor:
    """Those of this process that ask, begun when there is something to ask for."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, thread_name_prefix="get")
