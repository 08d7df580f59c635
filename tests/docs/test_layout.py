"""What a reader of the site sees is what the sources mean: no line of code is cut, and no cell shows an escape."""

import re
from collections.abc import Iterator
from pathlib import Path

from overnight.cli.reference.api_pages import COLUMNS

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```.*?^```|^ {4}.*?$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
# The setting is longer than a line of a block.
LONGER = "export PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE=prefect.server.concurrency.lease_storage.filesystem"


def lines_of_code(text: str) -> Iterator[str]:
    for block in BLOCK.findall(text):
        if not block.startswith("```"):
            yield block[4:]
        elif not block.startswith("```{"):  # the directives of MyST, such as an image
            yield from block.splitlines()[1:-1]


def test_no_line_of_code_is_wider_than_a_block_of_the_site(texts: dict[Path, str]) -> None:
    wide = [
        f"{path.name}: {line}"
        for path, text in texts.items()
        if "docs" in path.relative_to(ROOT).parts
        for line in lines_of_code(text)
        if len(line) > COLUMNS and line != LONGER
    ]
    assert wide == []


def test_a_cell_of_the_reference_has_no_escape_in_code_and_no_bold_text_outside_of_it(written: dict[str, str]) -> None:
    pages = {name: text for name, text in written.items() if name.startswith("reference/job-file/")}
    spans = [span for text in pages.values() for span in SPAN.findall(text)]
    assert "0 2 * * *" in spans
    assert [span for span in spans if "\\" in span.replace("\\|", "")] == []
    assert [name for name, text in pages.items() if "__" in SPAN.sub("", text)] == []
