"""The pages of the site, with those that the build writes."""

from importlib import util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    found = util.spec_from_file_location("reference_pages", ROOT / "docs/reference_pages.py")
    assert found
    assert found.loader
    module = util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def written(reference: ModuleType) -> dict[str, str]:
    """The text of each page that the build writes, by its name below docs/."""
    return dict(reference.pages())


@pytest.fixture(scope="session")
def texts(written: dict[str, str]) -> dict[Path, str]:
    """Each page's text by its path; those that the build writes are there as it would write them."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    there = {path: path.read_text(encoding="utf-8") for path in paths}
    return there | {ROOT / "docs" / name: text for name, text in written.items()}
