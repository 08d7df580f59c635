"""The page holds all that it shows, runs nothing, and shows texts of data as text."""

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.flows.report import page
from overnight.flows.report.page import render, text_of_data
from overnight.flows.report.report import read_report
from overnight.tasks.write.checks.column_statistics import describe, summary
from tests.flows.report.runs import job_of, publish, receipt_of

HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</style></title><b>",
    "{{ 7 * 7 }}{% raw %}",
    "\u202etxt.exe\x1b[31m\x00",
    "العربية",
    "hf_" + "a" * 30,
]


class Tags(HTMLParser):
    """Collects the tags and the attributes of a page, and checks that tags are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def hostile_page(folder: Path) -> str:
    count = len(HOSTILE)
    columns = {
        "row_id": HOSTILE,
        "uri": HOSTILE,
        "predicted_label": HOSTILE,
        "score": [n / count for n in range(count)],
    }
    table = pa.table(columns | {text: [text * 20 for text in HOSTILE] for text in HOSTILE})
    incidents = [{"stage": text, "what": text, "times": 1} for text in HOSTILE]
    receipt = receipt_of("2026-01-09", summary(describe(table), ()), warnings=HOSTILE, incidents=incidents)
    receipt |= {"reason": HOSTILE[0], "logs": HOSTILE[1], "versions": dict.fromkeys(HOSTILE, HOSTILE[0])}
    receipt |= {"settings": {"name": HOSTILE[0]}, "performance": {"bounded_by": HOSTILE[0], "advice": HOSTILE[1]}}
    failed = tuple((text, text, text, text, text) for text in HOSTILE)
    return render(read_report(job_of(folder), publish(folder, receipt, table, failed), HOSTILE[0]))


def test_texts_of_data_stay_texts(tmp_path: Path) -> None:
    text = hostile_page(tmp_path)
    tags = Tags(text)
    assert tags.open == []
    assert not {"script", "img", "link", "iframe"} & set(tags.names)
    assert not [name for name, _ in tags.attributes if name.startswith("on")]
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text
    assert "{{ 7 * 7 }}" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\u202a-\u202e]", text)
    assert "hf_aaa" not in text


def test_the_page_needs_no_network(tmp_path: Path) -> None:
    addresses = [value for name, value in Tags(hostile_page(tmp_path)).attributes if name in ("src", "href")]
    assert all(address.startswith(("#", "data:")) for address in addresses)
    assert "default-src 'none'" in hostile_page(tmp_path)


@pytest.mark.parametrize("status", ["published", "failed", "cancelled"])
def test_a_record_of_an_earlier_version_that_lacks_most_fields_has_a_page(tmp_path: Path, status: str) -> None:
    record: dict[str, Any] = {"job": "daily", "partition": "2026-01-09", "status": status}
    if status == "published":
        counts = dict.fromkeys(("rows_in", "rows_out", "rows_filtered", "rows_quarantined"), 3)
        record |= {"generation": "g", "files": [], **counts}
    text = render(read_report(job_of(tmp_path), record))
    assert Tags(text).open == []
    assert "daily/2026-01-09" in text


def test_every_section_of_the_navigation_exists(tmp_path: Path) -> None:
    text = hostile_page(tmp_path)
    targets = re.findall(r'href="#([\w-]+)"', text)
    assert len(targets) > 8
    assert {f'id="{target}"' in text for target in targets} == {True}


def test_what_the_keyboard_can_scroll_has_a_role_and_a_name(tmp_path: Path) -> None:
    """A screen reader skips the name of an element without a role."""
    scrolled = re.findall(r"<[^>]*tabindex[^>]*>", hostile_page(tmp_path))
    assert len(scrolled) > 3
    assert [tag for tag in scrolled if 'role="region"' not in tag or "aria-label" not in tag] == []


def test_a_long_text_is_cut_and_its_secrets_are_masked_before() -> None:
    assert text_of_data("x" * 400, 10) == "xxxxxxxxx…"
    assert "hf_" not in text_of_data("key: hf_" + "a" * 30, 20)
    assert text_of_data(None) == ""


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (page.number, 1234567, "1,234,567"),
        (page.number, 0.123456, "0.1235"),
        (page.number, 12345.678, "12,345.7"),
        (page.number, float("nan"), "\u2013"),
        (page.number, None, "\u2013"),
        (page.share, 0.1234, "12.3%"),
        (page.share, 0.00123, "0.12%"),
        (page.duration, 0.25, "250 ms"),
        (page.duration, 200, "3 min 20 s"),
        (page.duration, 7500, "2 h 5 min"),
        (page.moment, "2026-01-01T02:03:04.567Z", "2026-01-01 02:03:04 UTC"),
        (page.moment, None, "\u2013"),
        (page.moment, 5, "5 UTC"),  # of a receipt that Overnight did not write
        (page.size, 999, "999 B"),
        (page.size, 1_500_000, "1.4 MiB"),
    ],
)
def test_figures_are_short(function: Any, value: Any, text: str) -> None:
    assert function(value) == text


def test_a_changed_version_model_or_fingerprint_is_marked_and_a_new_generation_is_not(tmp_path: Path) -> None:
    receipts = []
    for number in (1, 2):
        more = {"fingerprint": f"f{number}", "inputs": f"i{number}", "commits": {"org/model": None}}
        more["versions"] = {"torch": f"2.{number}", "ray": "2.60", "commit": "abc"}
        more["ingredients"] = {"models": [{"model.onnx": f"d{number}"}], "steps": [{}]}
        receipts.append(publish(tmp_path, receipt_of(f"2026-01-0{number}", **more)))
    page = render(read_report(job_of(tmp_path), receipts[1]))
    facts = dict(re.findall(r'<tr><th scope="row"><bdi>([^<]+)</bdi></th><td><code>(.*?)</td>', page, re.DOTALL))
    changed = {name for name, text in facts.items() if "changed" in text}
    assert changed == {"fingerprint of settings, models and code", "version of torch", "inference.0: model.onnx"}
    assert {"generation", "digest of the inputs", "commit of the job", "commit of org/model"} <= facts.keys()
