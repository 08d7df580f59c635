"""The setting `reuse` of a model at an endpoint, and the key by which a later run finds an answer."""

import hashlib
import json
import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, PositiveInt

from overnight.tasks.config.masking import masked
from overnight.tasks.config.settings import Settings

FORMAT_VERSION = 1  # of the keys and the kept answers
REUSED = ".reused"  # after a model's name: the log of the tokens of answers that a generation reused
TOKENS = ("prompt_tokens", "completion_tokens", "cached_tokens")  # in this log
FULL = re.compile(r"(?!hf:|https?:)(/|~|\$\{|[A-Za-z][A-Za-z0-9+.-]*://)")


def _for_all_jobs(path: str) -> str:
    if not FULL.match(path):
        raise ValueError(
            "expected a full path, or a URI of a store that can be written, such as s3://bucket/answers, "
            f"found {masked(path)!r}"
        )
    if masked(path) != path:
        raise ValueError("expected a path without a secret; use ${VARIABLE} or the store's own credentials")
    return path


SharedFolder = Annotated[
    str,
    Field(description="The folder, as a full path or a URI; many jobs may share it.", examples=["s3://bucket/answers"]),
    AfterValidator(_for_all_jobs),
]


class Reuse(Settings):
    """Where the answers of published runs are kept, and for how long they serve."""

    path: SharedFolder
    days: Annotated[PositiveInt, Field(description="An answer serves for this long.")] = 90


def reuse_key(dialect: str, address: str, body: Any, row_id: str | None) -> str:
    """Return the key of a request: a hash, in hexadecimal, of the address without query and the whole body as sent.

    `row_id` is None if another row with this body gets the same answer.
    """
    # Keys of the body keep their order, because a model writes the fields of a schema in this order.
    text = json.dumps([FORMAT_VERSION, dialect, address, body, row_id], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
