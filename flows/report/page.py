"""Render a report as one HTML page: no script, nothing from a network, and every text of data escaped.

Texts of data are masked, their control characters and marks of direction are written out, and long ones are cut.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

from jinja2 import ChainableUndefined, Environment, PackageLoader

from overnight.flows.report.report import Report
from overnight.flows.report.spending import total_of
from overnight.tasks.config.masking import masked, printable
from overnight.tasks.engine import progress_text

LONGEST = 300  # characters of a text of data
LONGEST_MESSAGE = 2000
UNKNOWN = "\u2013"
WHOLE = 10**15  # below this, a float shows whole numbers exactly


def render(report: Report) -> str:
    page = environment().get_template("report.html.j2")
    return page.render(report=report, record=report.record, verdict=report.verdict, total=total_of(report.uses))


@cache
def environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("overnight.flows.report"),
        autoescape=True,
        undefined=ChainableUndefined,  # receipts of earlier versions lack fields
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        **{"data": text_of_data, "message": lambda value: text_of_data(value, LONGEST_MESSAGE)},
        **{"number": number, "share": share, "duration": duration, "moment": moment, "size": size},
    }
    environment.globals |= {"number": number, "share": share}
    return environment


def text_of_data(value: Any, longest: int = LONGEST) -> str:
    """Return a text that comes from data, without secrets and control characters, and cut to `longest` characters."""
    text = str("" if value is None else value)
    line = printable(masked(text[: 4 * longest]))  # masked first: half a secret has no form
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _of_numbers(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """Return a function that is `text` for finite numbers, and a dash for an unknown one."""
    return lambda value: text(value) if isinstance(value, int | float) and math.isfinite(value) else UNKNOWN


@_of_numbers
def number(value: Any) -> str:
    """Return a number with its thousands apart, and with four digits if it is not whole."""
    if float(value).is_integer() and abs(value) < WHOLE:
        return f"{value:,.0f}"
    return f"{value:,.1f}" if 1000 <= abs(value) < WHOLE else f"{value:.4g}"


@_of_numbers
def share(value: Any) -> str:
    """Return a fraction as a percentage."""
    return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.1%}"


@_of_numbers
def duration(seconds: Any) -> str:
    """Return seconds as `850 ms`, `42.1 s`, `3 min 20 s` or `2 h 5 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 60 else progress_text.duration(seconds)


size = _of_numbers(progress_text.bytes_text)


def moment(text: Any) -> str:
    """Return a time of a receipt as `2026-11-19 02:00:05 UTC`; a dash for an unknown one."""
    return f"{str(text)[:19].replace('T', ' ')} UTC" if text else UNKNOWN
