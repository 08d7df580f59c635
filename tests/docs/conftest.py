"""The pages of the site, with those that the build writes."""

from pathlib import Path

import pytest

from overnight.cli.reference.pages import written_pages

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def written() -> dict[str, str]:
    """The text of each page that the build writes, by its name below docs/."""
    return {f"{name}.md": text for name, text in written_pages().items()}


@pytest.fixture(scope="session")
def texts(written: dict[str, str]) -> dict[Path, str]:
    """Each page's text by its path; those that the build writes are there as it would write them."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    there = {path: path.read_text(encoding="utf-8") for path in paths}
    return there | {ROOT / "docs" / name: text for name, text in written.items()}
