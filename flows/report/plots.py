"""Draw histograms as SVG with matplotlib, in the colours of the page. Without matplotlib, the page has tables alone.

The SVG contains numbers and no texts of data. Its colours are variables of the page's style, so it follows light and
dark.
"""

import io
import re
from typing import Any

import numpy as np

# Colours in matplotlib's SVG -> those of the page.
COLOURS = {"#0000a1": "var(--now)", "#0000a2": "var(--before)", "#0000a3": "currentColor", "#0000a4": "var(--line)"}
NOW, BEFORE, TEXT, LINE = COLOURS
INCHES = (4.4, 1.9)
STYLE: Any = {
    "svg.fonttype": "none",  # text stays text
    "font.family": "sans-serif",
    "font.size": 9,
    "text.color": TEXT,
    "xtick.labelcolor": TEXT,
    "ytick.labelcolor": TEXT,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "axes.edgecolor": LINE,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.formatter.limits": (-4, 5),
}


def is_available() -> bool:
    """Return True if matplotlib can be imported. The extra `report` brings it."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def histogram(edges: np.ndarray, counts: np.ndarray, before: np.ndarray | None, are_lengths: bool) -> str:
    """Return bars of the shares of rows per bin, and the earlier shares as a line over them, as inline SVG."""
    from matplotlib import rc_context
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    with rc_context(STYLE):
        figure = Figure(figsize=INCHES, layout="constrained")
        axes = figure.subplots()
        places = np.asarray(edges, float)
        if are_lengths:  # bins of growing width are drawn with equal widths
            counts, before, edges = _trimmed(counts, before, edges)
            places = np.arange(len(edges), dtype=float)
        axes.stairs(counts / max(counts.sum(), 1), places, fill=True, color=NOW, clip_on=False)
        if before is not None and before.sum():
            axes.stairs(before / before.sum(), places, color=BEFORE, linewidth=1.6, clip_on=False)
        if are_lengths:
            axes.set_xticks(places, [_short(edge) for edge in edges])
        else:
            axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_locator(MaxNLocator(3))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.tick_params(length=0)
        figure.patch.set_visible(False)
        axes.patch.set_visible(False)
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(buffer, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return _inline(buffer.getvalue())


def _trimmed(
    counts: np.ndarray, before: np.ndarray | None, edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
    """Return the bins without the empty ones at both ends."""
    total = counts
    if before is not None:
        total = counts + before
    filled = np.flatnonzero(total)
    if not len(filled):
        return counts, before, edges
    first, last = filled[0], filled[-1] + 1
    if before is not None:
        before = before[first:last]
    return counts[first:last], before, edges[first : last + 1]


def _short(number: float) -> str:
    return f"{number / 1000:g}k" if number >= 1000 else f"{number:g}"


def _inline(svg: str) -> str:
    """Return an SVG document as an element that a page may hold many times: no ids, and the page's colours."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, flags=re.DOTALL)
    svg = re.sub(r' id="(?:figure|axes|patch|text|line2d|matplotlib|xtick|ytick|LineCollection)[^"]*"', "", svg)
    svg = re.sub(r' width="[^"]*pt" height="[^"]*pt"', ' aria-hidden="true" focusable="false"', svg, count=1)
    svg = re.sub(r"\s*\n\s*", " ", svg)
    for placeholder, colour in COLOURS.items():
        svg = svg.replace(placeholder, colour)
    return svg
