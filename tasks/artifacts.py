"""Names and layout of artifacts in the Prefect UI. The code that creates artifacts imports Prefect."""

import contextlib
import html
import logging
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.tasks.config.masking import masked


@contextlib.contextmanager
def dispensable(failure: str = "not shown in the Prefect UI") -> Iterator[None]:
    """Run the body, which only informs, and log `failure` if it fails: an unreachable Prefect server ends no run."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("%s: %s: %s", failure, type(error).__name__, error)


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
