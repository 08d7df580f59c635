"""A string in `tasks/` names no other module of Overnight: import-linter sees only statements of import."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OURS = re.compile(r"overnight\.(tasks|flows|api|cli)(\.\w+)+")


def named(path: Path) -> list[str]:
    """Return the modules of Overnight that strings of a file name, except the file's own module."""
    own = ".".join(("overnight", *path.relative_to(ROOT).with_suffix("").parts))
    constants = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)]
    texts = [(node.lineno, node.value) for node in constants if isinstance(node.value, str) and node.value != own]
    return [f"{path.relative_to(ROOT)}:{line} {text}" for line, text in texts if OURS.fullmatch(text)]


def test_no_string_names_a_module_past_the_import_rules() -> None:
    assert [found for path in sorted(ROOT.glob("tasks/**/*.py")) for found in named(path)] == []
