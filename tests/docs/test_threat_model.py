"""The table of who could do what: each cell leads to a section, and every section names tests that are there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")


def anchor(heading: str) -> str:
    return re.sub(r"[^a-z0-9 -]", "", heading.lower()).strip().replace(" ", "-")


def test_every_test_that_the_threat_model_names_is_there_and_every_threat_has_one() -> None:
    threats = PAGE.split("\n### ")[1:]
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    for threat in threats:
        named = re.findall(r"^- `(test_\w+)`$", threat, re.MULTILINE)
        assert named, threat
        assert set(named) <= there, set(named) - there
    assert len(threats) > 10
    assert set(re.findall(r"`(test_\w+)`", PAGE)) <= there


def test_every_cell_of_the_table_leads_to_a_section_with_tests() -> None:
    table = [line.strip("| ").split(" | ") for line in PAGE.split("\n## ")[0].splitlines() if line.startswith("| ")]
    sections = {anchor(threat.splitlines()[0]) for threat in PAGE.split("\n### ")[1:]}
    header, _, *rows = table
    assert len(rows) > 10
    for who, *cells in rows:
        assert len(cells) == len(header) - 1, who
        for cell in cells:
            [place] = re.findall(r"^\[[^\]]+\]\(#([a-z0-9-]+)\)$", cell)
            assert place in sections, (who, place)
