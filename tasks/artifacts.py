"""Names and layout of artifacts in the Prefect UI. The code that creates artifacts imports Prefect."""

import contextlib
import html
import logging
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Protocol
from uuid import UUID

from overnight.tasks.config.masking import masked

MIDDLE = UUID(int=1 << 127)
ATTEMPTS = 30  # each has even odds


class ArtifactClient(Protocol):
    """Prefect's client, as far as it creates artifacts."""

    def create_artifact(self, artifact: Any) -> Any: ...
    def delete_artifact(self, artifact_id: UUID) -> None: ...


@contextlib.contextmanager
def dispensable(failure: str = "not shown in the Prefect UI") -> Iterator[None]:
    """Run the body, which only informs, and log `failure` if it fails: an unreachable Prefect server ends no run."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("%s: %s: %s", failure, type(error).__name__, error)


def create_listed(client: ArtifactClient, artifact: Any, is_first: bool = False) -> UUID:
    """Create an artifact that Prefect's new pages list first, or after those. Return its id.

    They sort by the id, which is random: it is in the upper half of all ids, or in the lower one.
    """
    artifact_id = client.create_artifact(artifact).id
    for _ in range(ATTEMPTS):
        if (artifact_id > MIDDLE) == is_first:
            break
        client.delete_artifact(artifact_id)
        artifact_id = client.create_artifact(artifact).id
    return artifact_id


def artifact_key(job: str, what: str) -> str:
    """Return the key of an artifact, such as `digits-summary`. All partitions of a job have the same key.

    Prefect allows lower-case letters, digits and dashes. A checksum separates the jobs `a_b` and `a-b`.
    """
    name = f"{job}-{zlib.crc32(job.encode()):08x}" if "_" in job else job
    return re.sub(r"[^a-z0-9-]+", "-", f"{name}-{what}".lower()).strip("-")


def markdown_table(values: Mapping[str, Any]) -> str:
    """Return a Markdown table with the names in one column and the values in the other."""
    lines = ["| | |", "| --- | --- |"]
    lines += [f"| {cell(name)} | {cell(value)} |" for name, value in values.items()]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return a value as a cell of a Markdown table: one line, escaped, no secret of a URL, thousands grouped."""
    text = str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        text = f"{value:,}"
    return html.escape(masked(text), quote=False).replace("|", "&#124;").replace("\n", " ")
