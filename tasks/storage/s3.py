"""S3 as a filesystem: unchanged s3fs, with a session that retries requests (`s3_retries.py`).

Listings, and reads of one version, use the method `bucket`, and obstore if it can do the request (`s3_bucket.py`).
"""

from typing import Any

from fsspec.asyn import sync
from s3fs import S3FileSystem

from overnight.tasks.storage.s3_bucket import Bucket
from overnight.tasks.storage.s3_retries import ONE_ATTEMPT, retrying_session


class PatientS3(S3FileSystem):
    """s3fs with Overnight's retries. It overrides only the constructor."""

    def __init__(self, **options: Any) -> None:
        settings = {**(options.get("config_kwargs") or {}), "retries": ONE_ATTEMPT}
        session = options.get("session") or retrying_session(options.get("profile"))
        super().__init__(**{**options, "config_kwargs": settings, "session": session})
        self._buckets: dict[str, Bucket] = {}

    def bucket(self, name: str) -> Bucket:
        """Return the `Bucket` of this name, always the same one."""
        return self._buckets.setdefault(name, Bucket(self, name))

    def ask_for_credentials(self) -> dict[str, str | None]:
        """Return the current credentials under obstore's names, from this filesystem's options or from botocore."""

        async def ask() -> Any:
            return await (await self.session.get_credentials()).get_frozen_credentials()

        keys = (self.key, self.secret, self.token)
        if not self.key:
            keys = sync(self.loop, ask)[:3]
        return dict(zip(("access_key_id", "secret_access_key", "token"), keys, strict=True))
