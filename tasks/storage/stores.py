"""How a place in S3 is reached: the endpoint, profile, region and role of the job's key `storage`.

A process has one table of these settings. The load of a job sets it, and so does the arrival of a `Run` in a worker.
The table holds names, never keys: each process gets its keys from the profile where it runs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, field_validator, model_validator

from overnight.tasks.config.settings import Settings
from overnight.tasks.errors import JobError

S3 = ("s3://", "s3a://")
WITHOUT_SECRETS = (
    "expected an address such as https://minio.example.com:9000, without user, password and query. Put keys into a "
    "profile of AWS's configuration, and name it in profile"
)


class Store(Settings):
    """How one place in S3 is reached. What is not set comes from the environment, as without `storage`."""

    endpoint: Annotated[
        str | None,
        Field(
            description="The address of the S3 server, without user and password.",
            examples=["https://minio.example.com:9000"],
        ),
    ] = None
    profile: Annotated[
        str | None, Field(min_length=1, description="A profile of AWS's configuration on the machines of the run.")
    ] = None
    region: Annotated[str | None, Field(min_length=1, description="The region of the bucket.")] = None
    role_arn: Annotated[
        str | None,
        Field(
            pattern=r"^(arn:|\$\{)",
            description="The role that the profile, or the machine's own identity, assumes.",
            examples=["arn:aws:iam::123456789012:role/overnight"],
        ),
    ] = None

    @field_validator("endpoint")
    @classmethod
    def _without_secrets(cls, endpoint: str | None) -> str | None:
        if endpoint and not endpoint.startswith("${") and not _is_plain_address(endpoint):
            raise ValueError(WITHOUT_SECRETS)
        return endpoint

    @model_validator(mode="after")
    def _has_a_setting(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("expected one of endpoint, profile, region, role_arn, found none")
        return self

    def expanded(self) -> "Store":
        """Return the settings with the values of their `${ENV_VAR}`. Raise `JobError` for a value that is invalid."""
        from overnight.tasks.storage.location import expand  # here, because that file imports this one

        values = {name: expand(value) for name, value in self.model_dump(exclude_none=True).items()}
        if "endpoint" in values and not _is_plain_address(values["endpoint"]):
            raise JobError(f"storage: endpoint: {self.endpoint}: {WITHOUT_SECRETS}.")
        try:
            return Store(**values)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            key = str(problem["loc"][0])
            raise JobError(f"storage: {key}: {getattr(self, key)}: {problem['msg']} where the job runs.") from None


@dataclass(frozen=True)
class Stores:
    """The settings of the places of a job. A process that receives them by pickle uses them from then on."""

    by_prefix: Mapping[str, Store] = field(default_factory=dict)

    def __reduce__(self) -> tuple[object, ...]:
        return use, (dict(self.by_prefix),)

    def at(self, uri: str) -> tuple[str, Store | None]:
        """Return the longest place that contains `uri`, and its settings; an empty text and None without one."""
        if self.by_prefix and uri.startswith(S3):
            path = _path(uri)
            for prefix, store in self._longest_first:
                if path == prefix or path.startswith(f"{prefix}/"):
                    return prefix, store
        return "", None

    @cached_property
    def _longest_first(self) -> list[tuple[str, Store]]:
        from overnight.tasks.storage.location import expand  # here, because that file imports this one

        stores = [(_path(expand(prefix)), store.expanded()) for prefix, store in self.by_prefix.items()]
        return sorted(stores, key=lambda entry: len(entry[0]), reverse=True)


_in_use = [Stores()]  # one element


def use(by_prefix: Mapping[str, Store]) -> Stores:
    """Let this process reach each place as its `Store` describes, and every other place by the environment."""
    _in_use[0] = Stores(by_prefix)
    return _in_use[0]


def in_use() -> Stores:
    """Return the settings that this process uses."""
    return _in_use[0]


def joined(first: Mapping[str, Store], second: Mapping[str, Store]) -> dict[str, Store]:
    """Return the settings of two jobs. For a place that both name, the settings are those of `first`."""
    # `first` twice: its keys come first, which decides between s3:// and s3a://, and its values win
    return {**first, **second, **first}


def require_prefixes(by_prefix: Mapping[str, Store]) -> None:
    """Raise `ValueError` for a key other than a bucket or a folder of S3, and for two keys that name one place."""
    paths: dict[str, str] = {}
    for prefix in by_prefix:
        path = _path(prefix)
        bucket = path.partition("/")[0]
        if not prefix.startswith(S3) or not bucket or set(prefix) & set("@?#*"):
            raise ValueError(f"expected places such as s3://bucket or s3://bucket/folder, found {_shown(prefix)}")
        if path in paths:
            raise ValueError(f"expected each place once, found {paths[path]} and {prefix}")
        paths[path] = prefix


def _shown(prefix: str) -> str:
    return "one with @, before which a key may be" if "@" in prefix else prefix


def _path(uri: str) -> str:
    """Return bucket and key of a URI, without a slash at the end: `bucket/folder` of `s3a://bucket/folder/`."""
    return uri.partition("://")[2].rstrip("/")


def _is_plain_address(endpoint: str) -> bool:
    url = urlsplit(endpoint)
    is_web = url.scheme in ("http", "https") and bool(url.netloc)
    return is_web and not (set("@?#") & set(endpoint))
