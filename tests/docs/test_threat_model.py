"""Every test that the threat model names is there."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_test_that_the_threat_model_names_is_there_and_every_threat_has_one() -> None:
    threats = (ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8").split("\n### ")[1:]
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")]
    there = {name for source in sources for name in re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)}
    for threat in threats:
        named = re.findall(r"^- `(test_\w+)`$", threat, re.MULTILINE)
        assert named, threat
        assert set(named) <= there, set(named) - there
    assert len(threats) > 10
