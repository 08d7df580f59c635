"""pyproject.toml declares every library that the code imports, in the base or in an extra."""

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from overnight.tasks.config.extras import EXTRAS

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SHARED_ROOTS = {"google"}  # a folder into which several distributions install
# Ray brings these whatever the extras are, and does not start without them.
BROUGHT_BY_RAY = {"google.protobuf", "pandas"}

NOTHING_OPTIONAL = """
import importlib, pkgutil, sys
sys.modules |= dict.fromkeys(sys.argv[1:])
import overnight
for module in pkgutil.walk_packages(overnight.__path__, "overnight."):
    importlib.import_module(module.name)
"""


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


BASE = names(PROJECT["dependencies"])
EXTRA = {extra: names(needed) for extra, needed in PROJECT["optional-dependencies"].items()}


def imports(path: Path) -> Iterator[str]:
    """The modules that a file imports anywhere; of a library the first name, of a shared root two."""
    for node in ast.walk(ast.parse(path.read_text())):
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found = [node.module]
        for name in found:
            root = name.partition(".")[0]
            if root not in sys.stdlib_module_names and root != "overnight":
                yield ".".join(name.split(".")[:2]) if root in SHARED_ROOTS else root


def imported() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(path for folder in ("flows", "overnight", "tasks") for path in ROOT.glob(f"{folder}/**/*.py")):
        for module in imports(path):
            found.setdefault(module, []).append(str(path.relative_to(ROOT)))
    return found


def distributions(module: str) -> set[str]:
    """The installed distributions that a module comes from."""
    if module == "google.protobuf":
        return {"protobuf"}
    return {canonicalize_name(name) for name in INSTALLED.get(module, [])}


IMPORTED = imported()
INSTALLED = packages_distributions()


def test_what_is_imported_is_declared() -> None:
    declared = {module: EXTRA[EXTRAS[module]] if module in EXTRAS else BASE for module in IMPORTED}
    missing = {module: files for module, files in IMPORTED.items() if not distributions(module) & declared[module]}
    assert missing == {}, "declare these modules, which these files import"


def test_an_extra_brings_its_library_and_all_means_all() -> None:
    assert [module for module, extra in EXTRAS.items() if not distributions(module) & EXTRA[extra]] == []
    [everything] = map(Requirement, PROJECT["optional-dependencies"]["all"])
    assert (everything.name, everything.extras) == ("overnight", set(EXTRA) - {"all"})


def test_no_module_needs_an_optional_library_when_it_is_imported() -> None:
    command = [sys.executable, "-c", NOTHING_OPTIONAL, *sorted(EXTRAS.keys() - BROUGHT_BY_RAY)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert not done.returncode, done.stderr[-2000:]
