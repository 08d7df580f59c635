"""The HTML of a job's history and of the index of all jobs: no script, nothing from a network, all texts escaped.

Links are relative, so that the pages work from a disk, from a bucket and from a server.
"""

import zlib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import numpy as np

from overnight.flows.history.calendar import calendar
from overnight.flows.history.history import History
from overnight.flows.history.lines import Line
from overnight.flows.ledger.calendar_view import LETTERS, count
from overnight.flows.report.page import environment
from overnight.flows.report.timeline import Curve
from overnight.tasks.artifacts import artifact_key
from overnight.tasks.config.masking import masked

CURVES = {"rows per second": ("rate", "number"), "quarantined": ("quarantined", "share")}
CURVES |= {"cost of 1,000 rows": ("cost", "number"), "agreement with labels": ("agreement", "share")}
NEWEST = 14  # partitions of a job on the index


def slug(history: History) -> str:
    """Return the name of a job's page. A checksum separates jobs of the same name in two folders."""
    return artifact_key(masked(history.job)[:60], f"{zlib.crc32(str(history.state).encode()):08x}")


def job_page(history: History, reports: str | None, index: str = "") -> str:
    """Return the page of a job. `reports` leads from it to the job's state; None makes no links to reports."""

    def link(line: Line) -> str:
        return f"{reports}/{quote(report_path(history, line))}" if line.report and reports is not None else ""

    return _render(
        "history.html.j2",
        history=history,
        months=calendar(history),
        lines=history.lines[::-1],
        by_partition={line.entry.partition: line for line in history.lines},
        curves=_curves(history.lines),
        link=link,
        index=index,
    )


def index_page(histories: Sequence[History], links: Mapping[str, str | None]) -> str:
    """Return the index. `links` leads from it to the state of each job, by the job's slug."""
    return _render("index.html.j2", histories=histories, links=links, newest=NEWEST)


def report_path(history: History, line: Line) -> str:
    """Return the path of a line's report below the state; empty without a report."""
    return f"{history.directories[line.entry.partition]}/{line.report}" if line.report else ""


def _render(template: str, **values: Any) -> str:
    page = environment().get_template(template)
    made_at = datetime.now(UTC).isoformat()
    functions = {"slug": slug, "count": count, "newest_report": _newest_report, "letters": LETTERS}
    return page.render(**values, **functions, made_at=made_at)


def _newest_report(history: History) -> str:
    return quote(report_path(history, history.lines[-1]))


def _curves(lines: Sequence[Line]) -> list[Curve]:
    """Return the figures over all publishes that know them, if two do."""
    publishes = [line for line in lines if line.receipt]
    curves = []
    for name, (attribute, unit) in CURVES.items():
        values = np.array([getattr(line, attribute) for line in publishes], float)  # NaN if unknown
        indices = np.flatnonzero(np.isfinite(values))
        if len(indices) > 1:
            top = float(values[indices].max())
            points = np.stack([indices / (len(values) - 1), values[indices] / (top or 1.0)], 1).tolist()
            curves.append(Curve(name, unit, points, top))
    return curves
