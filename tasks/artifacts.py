"""How artifacts are named and laid out in the Prefect UI. Only text: who creates them imports Prefect."""

import contextlib
import html
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from overnight.tasks.config.masking import masked


@contextlib.contextmanager
def dispensable() -> Iterator[None]:
    """For what only informs people, as a decorator or in a `with`: a Prefect server that is away costs no run."""
    try:
        yield
    except Exception as error:
        logging.getLogger(__name__).warning("not shown in the Prefect UI: %s: %s", type(error).__name__, error)


def artifact_key(job: str, what: str) -> str:
    """A key as Prefect allows it: lower-case letters, digits and dashes. The same for every partition of a job."""
    return re.sub(r"[^a-z0-9-]+", "-", f"{job}-{what}".lower()).strip("-")


def markdown_table(values: Mapping[str, Any]) -> str:
    """A table of two columns. Names and values are escaped: they may come from file names and labels."""
    lines = ["| | |", "| --- | --- |"]
    lines += [f"| {cell(name)} | {cell(value)} |" for name, value in values.items()]
    return "\n".join(lines)


def cell(value: Any) -> str:
    """Return a value as a cell of a Markdown table: one line, escaped, no secret of a URL, thousands grouped."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return html.escape(masked(text), quote=False).replace("|", "&#124;").replace("\n", " ")
