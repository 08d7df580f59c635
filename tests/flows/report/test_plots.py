"""Histograms are SVG in the colours of the page, with text as text and without ids that could repeat."""

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from overnight.flows.report import plots

EDGES = np.linspace(0, 1, 5)
COUNTS = np.array([1, 2, 3, 4])


def test_a_histogram_follows_the_colours_of_the_page_and_has_text_as_text() -> None:
    svg = plots.histogram(EDGES, COUNTS, COUNTS[::-1], are_lengths=False)
    assert svg.startswith("<svg")
    assert {"var(--now)", "var(--before)", "currentColor"} <= set(re.findall(r"var\(--\w+\)|currentColor", svg))
    assert not re.search(r"#[0-9a-f]{6}", svg)
    assert ">0.50</text>" in svg
    assert " id=" not in svg
    assert "width=" not in svg.partition(">")[0]
    assert len(svg) < 12_000


def test_without_an_earlier_partition_there_is_no_second_line() -> None:
    assert "var(--before)" not in plots.histogram(EDGES, COUNTS, None, are_lengths=False)


def test_lengths_show_only_the_bins_with_rows() -> None:
    svg = plots.histogram(np.array([0, 1, 2, 5, 10, 2000]), np.array([0, 3, 0, 5, 0]), None, are_lengths=True)
    assert re.findall(r">([\dk]+)</text>", svg) == ["1", "2", "5", "10"]
