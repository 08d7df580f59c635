"""Each module of more than `LINES` lines has a mirrored test file, or a contract suite that holds it.

`untested_modules.txt` lists the exceptions. The list only becomes shorter: a module that has a test may not stay in it.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXCEPTIONS = Path(__file__).with_name("untested_modules.txt")
LINES = 30


def modules() -> list[Path]:
    files = [file for folder in ("flows", "overnight", "tasks") for file in sorted(ROOT.glob(f"{folder}/**/*.py"))]
    return [file for file in files if len(file.read_text().splitlines()) > LINES]


def mirrored(module: Path) -> Path:
    """The module's own test file: `tests/tasks/rows/test_apply.py` of `tasks/rows/apply.py`."""
    path = module.relative_to(ROOT)
    return ROOT / "tests" / path.with_name(f"test_{path.name}")


def held_by_suites() -> set[str]:
    """The modules that a contract suite imports by name."""
    text = "\n".join(file.read_text() for file in sorted(ROOT.glob("tests/contracts/*/**/*.py")))
    found = set(re.findall(r"from (overnight(?:\.\w+)+) import", text))
    for package, names in re.findall(r"from (overnight(?:\.\w+)+) import \(?([\w\s,]+)", text):
        found |= {f"{package}.{name.strip()}" for name in names.split(",")}
    return found


def test_each_module_has_a_mirrored_test_file_or_a_contract_suite_unless_it_is_a_known_exception() -> None:
    held, known = held_by_suites(), EXCEPTIONS.read_text().split()
    untested = []
    for module in modules():
        path = str(module.relative_to(ROOT))
        name = "overnight." + path.removeprefix("overnight/").removesuffix(".py").replace("/", ".")
        if not mirrored(module).is_file() and name not in held:
            untested.append(path)
    assert sorted(set(untested) - set(known)) == [], "write a mirrored test file for each of these modules"
    assert sorted(set(known) - set(untested)) == [], f"take these modules, which have a test, out of {EXCEPTIONS.name}"
