"""The locked versions are those of pyproject.toml, and everything that needs them is in one file of them."""

import re
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
FILES = ("constraints.txt", "constraints-extras.txt", "constraints-dev.txt", "constraints-bench.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = PROJECT["project"]["optional-dependencies"]
GROUPS = PROJECT["dependency-groups"]
# What .ci/install.py installs together, and what pyproject.toml says of it.
SETS = {
    "demo": (FILES[:1], [*PROJECT["project"]["dependencies"], *GROUPS["demo"]]),
    "extras": (FILES[:2], [text for texts in EXTRAS.values() for text in texts]),
    "dev": (FILES[:3], [*GROUPS["docs"], *(text for text in GROUPS["dev"] if isinstance(text, str))]),
    "bench": ((*FILES[:2], FILES[3]), GROUPS["bench"]),
}
LOCKED = re.compile(r"^([\w.-]+)==([^\s;]+)(?: ; ([^\\\n]*))?", re.MULTILINE)


def lines(*files: str) -> Iterator[tuple[str, str]]:
    """The packages and versions that the files lock for this Python."""
    for name, version, marker in LOCKED.findall("".join((ROOT / file).read_text() for file in files)):
        if not marker or Marker(marker).evaluate():
            yield canonicalize_name(name), version


def locked(*files: str) -> dict[str, str]:
    return dict(lines(*files, "constraints-torch.txt"))


def requirements(texts: list[str]) -> Iterator[Requirement]:
    for text in texts:
        requirement = Requirement(text)
        if canonicalize_name(requirement.name) != PROJECT["project"]["name"]:
            yield requirement


@pytest.mark.parametrize("name", SETS)
def test_a_set_has_what_pyproject_and_its_packages_need(name: str):
    """pip installs a set with --no-deps, so every package that another one needs must have its line."""
    files, texts = SETS[name]
    versions, stale, seen = locked(*files), [], set()
    todo = [(requirement, "pyproject.toml") for requirement in requirements(texts)]
    while todo:
        requirement, needed_by = todo.pop()
        found, extras = canonicalize_name(requirement.name), requirement.extras or {""}
        if not requirement.specifier.contains(versions.get(found, "0"), prereleases=True):
            stale.append(f"{requirement} of {needed_by}: {versions.get(found, 'none')} locked")
        for extra in extras - {done for one, done in seen if one == found}:
            seen.add((found, extra))
            todo += [(needed, found) for needed in needs(found, extra)]
    assert not stale, "run `make lock`"


def needs(name: str, extra: str) -> Iterator[Requirement]:
    """What an installed package needs here, by its own metadata or by what pyproject.toml says instead."""
    instead = {one["name"]: one["requires-dist"] for one in PROJECT["tool"]["uv"]["dependency-metadata"]}
    try:
        texts = instead.get(name) if name in instead else metadata.requires(name)
    except metadata.PackageNotFoundError:
        return  # of the benchmarks; `make test` does not install them
    for requirement in requirements(texts or []):
        if not requirement.marker or requirement.marker.evaluate({"extra": extra}):
            yield requirement


def test_every_package_has_hashes_except_pytorch_and_no_lock_names_an_index():
    for file in (*FILES, "constraints-torch.txt"):
        assert not re.search(r"https?:|file:|--(?:extra-)?index|--find-links", (ROOT / file).read_text()), file
    for file in FILES:
        for block in re.split(r"^(?=\w)", (ROOT / file).read_text(), flags=re.MULTILINE)[1:]:
            assert "--hash=sha256:" in block, f"{file}: {block}"
    names = LOCKED.findall((ROOT / "constraints-torch.txt").read_text())
    assert [name for name, *_ in names] == ["torch"]


def test_no_version_is_locked_twice():
    """So the files of a set never disagree. One Python may have another version than the next."""
    versions: dict[str, set[str]] = {}
    for name, version in lines(*FILES):
        versions.setdefault(name, set()).add(version)
    assert {name: found for name, found in versions.items() if len(found) > 1} == {}
