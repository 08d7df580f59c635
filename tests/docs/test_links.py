"""The links of README.md, of the other texts at the top and of docs/ lead to files and headings that are there.

What is written by hand in the reference names every kind and every field. Headings become anchors as GitHub makes them,
and MyST makes the same ones for the site.
"""

import inspect
import re
from pathlib import Path

from overnight.cli.reference.job_pages import kinds
from overnight.cli.reference.pages import all_pages
from overnight.flows.runs.attempt import describe_failure
from overnight.tasks.errors import STAGES, CheckFailed
from overnight.tasks.write.publish.receipt import make_receipt
from overnight.tasks.write.stream.performance import Capacity, bottleneck

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(<?([^)\s>]+)>?\)")
CODE = re.compile(r"^(`{3,}|:{3,}).*?^\1[`:]*$|^( {4}).*?$|`[^`\n]+`", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    found: dict[str, int] = {}
    for heading in re.findall(r"^#{1,6} +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        found[slug] = found.get(slug, -1) + 1
    return {f"{slug}-{number}" if number else slug for slug, count in found.items() for number in range(count + 1)}


def dead_links(path: Path, texts: dict[Path, str]) -> list[str]:
    dead = []
    for link in LINK.findall(CODE.sub("", texts[path])):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not (target in texts or target.is_file()) or (anchor and anchor not in anchors(texts.get(target, ""))):
            dead.append(link)
    return dead


def test_every_link_of_readme_and_docs_leads_to_a_file_and_a_heading(texts: dict[Path, str]) -> None:
    dead = {str(path.relative_to(ROOT)): found for path in texts if (found := dead_links(path, texts))}
    assert dead == {}


def test_every_page_that_the_front_page_links_is_printed_without_a_checkout() -> None:
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    linked = {link.partition("#")[0].removesuffix(".md") for link in LINK.findall(CODE.sub("", front)) if ".md" in link}
    names = {name.removeprefix("docs/").lower() for name in linked} - {"contributing"}  # which needs a checkout anyway
    assert len(names) > 10
    assert names - all_pages(with_api=False).keys() == set()


def test_a_link_to_a_page_or_a_heading_that_is_not_there_is_found() -> None:
    page = ROOT / "docs/page.md"
    text = "# One\n[a](page.md#one) [b](page.md#two) [c](gone.md) `[d](gone.md)` [e](https://example.org/x)\n"
    assert dead_links(page, {page: text}) == ["page.md#two", "gone.md"]


def test_every_page_stands_in_the_contents_of_a_page_of_contents(texts: dict[Path, str]) -> None:
    listed = set()
    for path, text in texts.items():
        for contents in re.findall(r"^```{toctree}\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            entries = [line for line in contents.splitlines() if line and not line.startswith(":")]
            listed |= {path.parent / f"{entry}.md" for entry in entries}
    pages = {path for path in texts if path.is_relative_to(ROOT / "docs")} - {ROOT / "docs/index.md"}
    assert len(pages) > 40
    assert sorted(str(path.relative_to(ROOT)) for path in pages ^ listed) == []


def test_the_front_page_fits_in_200_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_every_kind_is_on_the_page_of_columns_and_in_the_list_of_the_job_file() -> None:
    columns = (ROOT / "docs/reference/columns.md").read_text(encoding="utf-8")
    listed = (ROOT / "docs/reference/job-file/index.md").read_text(encoding="utf-8")
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    makers = [kind for section in ("source", "preprocess", "inference") for kind in kinds(section)]
    assert [kind for kind in makers if f"`{kind}`" not in columns] == []
    assert [kind for kind in makers + kinds("sink") if f"`{kind}`" not in front] == []
    others = [kind for section in ("source", "shuffle", "sink") for kind in kinds(section)]
    assert [kind for kind in others if not re.search(rf"\b{kind}\b", listed)] == []


def test_every_field_of_a_receipt_and_of_a_failure_is_described() -> None:
    page = (ROOT / "docs/reference/receipt.md").read_text(encoding="utf-8")
    fields = set(re.findall(r'^        "(\w+)":', inspect.getsource(make_receipt), re.MULTILINE))
    assert {"rows_in", "files", "limit_rows"} <= fields
    stages = {stage: {"seconds": 1.0, "rows": 1.0, "bytes": 1.0} for stage in STAGES}
    fields |= set(bottleneck(stages, Capacity(2, 0), 1.0, 0.0))
    fields |= set(describe_failure("job", "all", CheckFailed("too few")))
    # The task `write` adds these; test_pages.py looks at the receipts of whole runs.
    fields |= {"settings", "inputs", "passed_over", "unreadable", "columns", "incidents", "left_out"}
    fields |= {"performance", "checks", "warnings", "logs", "table_version"}
    assert sorted(field for field in fields if f"`{field}`" not in page) == []
