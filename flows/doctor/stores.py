"""The check of `overnight doctor` that shows by which settings each place in S3 of a job is reached."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.flows.doctor.examine import Finding
from overnight.flows.job.model import Job
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import VARIABLE, Location
from overnight.tasks.storage.stores import S3, in_use

VARIABLES = (
    *("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_CONFIG_FILE"),
    *("AWS_ACCESS_KEY_ID", "AWS_ROLE_ARN"),
)
ADVICE = "Name its endpoint and profile in storage, or set AWS_PROFILE or AWS_ACCESS_KEY_ID where the job runs."


def check_stores(job: Job) -> Iterator[Finding]:
    """Return a finding for each place in S3 that the job names, and one for each key of `storage` without a place."""
    prefixes = set()
    for key, text in texts("", job.model_dump(mode="json", exclude={"storage"})):
        if all(name in os.environ for name in VARIABLE.findall(text)) and Location(text).uri.startswith(S3):
            prefixes.add(in_use().at(Location(text).uri)[0])
            yield _settings(job, key, Location(text))
    for prefix in job.storage:
        if in_use().at(Location(prefix).uri)[0] not in prefixes:
            yield Finding("storage", "warning", f"{prefix}: no path in the job file is there", "Check storage.")


def texts(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield the dotted key and the text of each text at any depth."""
    if isinstance(value, str):
        yield key, value
    entries = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield from texts(f"{key}.{name}".strip("."), inner)


def _settings(job: Job, key: str, location: Location) -> Finding:
    """Return how a place is reached. The finding has names of settings and variables, never their secrets."""
    prefix, store = in_use().at(location.uri)
    settings = f"as set in the environment ({', '.join(filter(os.environ.get, VARIABLES)) or 'no variable of AWS'})"
    if store:
        values = (f"{name} {value}" for name, value in store.model_dump(exclude_none=True).items())
        settings = f"{', '.join(values)}, from storage of s3://{prefix}"
    if key.startswith("source.") and getattr(job.source, "anonymous", False):
        return Finding("storage", "ok", f"{key} {location}: {settings}, without keys: anonymous")
    try:
        filesystem: Any = location.open_filesystem()[0]
        keys = filesystem.source_of_keys()
    except OvernightError as error:
        return Finding("storage", "wrong", f"{key} {location}: {error}", ADVICE)
    if not keys:
        return Finding("storage", "wrong", f"{key} {location}: {settings}; expected keys, found none", ADVICE)
    return Finding("storage", "ok", f"{key} {location}: {settings}; keys: {keys}")
