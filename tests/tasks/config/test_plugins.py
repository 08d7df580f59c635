"""Leaves of an installed package, as pip leaves one behind: modules and a dist-info folder on the path."""

import configparser
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pyarrow.parquet as pq
import pytest
import yaml
from pydantic import Field, TypeAdapter, ValidationError

from overnight.tasks.config.plugins import with_plugins
from overnight.tasks.config.settings import Leaf
from overnight.tasks.infer.predictor import Predictor

ROOT = Path(__file__).parents[3]
LEAVES = """
from typing import Annotated, Literal
import numpy as np
from pydantic import Field
from overnight.extend import Offer, Outcome, Predict, Predictor, PreprocessStep, Work
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.write.sinks.parquet import ParquetSink

class Records(Jsonl):
    kind: Literal["records"] = "records"
    extensions = (".records",)

class Shout(PreprocessStep):
    kind: Literal["shout"] = "shout"
    column: str
    def build(self) -> Work:
        return lambda table: Outcome({self.column: [text.as_py().upper() for text in table[self.column]]})

class Lengths(Predictor):
    kind: Literal["lengths"] = "lengths"
    column: str
    times: Annotated[int, Field(ge=1, description="What a length is multiplied by.")] = 1
    model: str = ""
    offer = Offer("lengths of texts", "text", "any", lambda column: {"column": column})
    def load(self) -> Predict:
        return lambda batch: {"length": np.array([len(text) * self.times for text in batch[self.column]])}

class Copies(ParquetSink):
    kind: Literal["copies"] = "copies"
"""
JOB = {
    "name": "plugged",
    "source": {"kind": "records", "path": "in"},
    "preprocess": [{"kind": "shout", "column": "text"}],
    "inference": [{"kind": "lengths", "column": "text", "times": 2}],
    "sink": {"kind": "copies", "path": "out"},
}
COMMANDS = """
import json, sys
from click.testing import CliRunner
from overnight.cli.main import main
for arguments in json.loads(sys.argv[1]):
    done = CliRunner().invoke(main, arguments)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""


def install(target: Path, package: str, points: dict[str, dict[str, str]], **modules: str) -> Path:
    """What `pip install --target` leaves behind: modules, and dist-info with entry points. The target."""
    information = target / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n")
    sections = configparser.ConfigParser()
    sections.read_dict({f"overnight.{group}": some for group, some in points.items()})
    with (information / "entry_points.txt").open("w") as file:
        sections.write(file)
    for name, content in modules.items():
        (target / f"{name}.py").write_text(content)
    return target


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    kinds = {"sources": "Records", "steps": "Shout", "predictors": "Lengths", "sinks": "Copies"}
    points = {group: {name.lower(): f"more_leaves:{name}"} for group, name in kinds.items()}
    return install(tmp_path / "site", "more_leaves", points, more_leaves=LEAVES)


def output_of(folder: Path, site: Path, code: str, *arguments: str) -> str:
    """What Python code prints that has the package."""
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command, environment = [sys.executable, "-c", code, *arguments], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def write_job(folder: Path, **changes: Any) -> None:
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB | changes))
    (folder / "in").mkdir()
    (folder / "in/a.records").write_text('{"text": "a"}\n{"text": "bcd"}\n')
    (folder / "in/b.jsonl").write_text('{"text": "not mine"}\n')


def test_leaves_of_a_package_have_the_typing_errors_schema_and_offers_of_those_built_in(
    installed: Path, tmp_path: Path
) -> None:
    write_job(tmp_path, inference=[{"kind": "lengths", "column": "a", "tmes": 2}, {"kind": "lengths", "times": 0}])
    offered = ["--path", "in/a.records", "--work", "lengths", "--text-column", "text", "--name", "it"]
    asked = [["validate", "job.yaml"], ["validate", "--schema"], ["init", *offered]]
    printed = output_of(tmp_path, installed, COMMANDS, json.dumps(asked))
    wrong, schema, init = (json.loads(line) for line in printed.splitlines())
    assert wrong[0] == 2
    assert "inference.0.tmes: unknown key (did you mean times?); the keys of inference.0 are" in wrong[2]
    assert "inference.1.times: expected a whole number of at least 1, found 0" in wrong[2]
    lengths = json.loads(schema[1])["$defs"]["Lengths"]
    assert lengths["properties"]["times"]["description"] == "What a length is multiplied by."
    assert lengths["required"] == ["kind", "column"]
    assert init[0] == 0, init
    written = yaml.safe_load((tmp_path / "it.yaml").read_text())
    assert written["source"]["kind"] == "records"
    assert written["inference"] == [{"kind": "lengths", "model": "any", "column": "text"}]


@pytest.mark.slow
def test_a_job_of_nothing_but_plugins_runs(
    installed: Path, tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path)
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    code = "from overnight.cli.main import main; main(prog_name='overnight')"
    [file] = json.loads(output_of(tmp_path, installed, code, "run", "job.yaml", "--json"))["files"]
    rows = pq.read_table(tmp_path / "out" / file).to_pylist()
    assert [(row["text"], row["length"]) for row in rows] == [("A", 2), ("BCD", 6)]


class Plain(Leaf):
    kind: Literal["plain"] = "plain"


def leaves_of(site: Path, monkeypatch: pytest.MonkeyPatch, group: str, parent: type[Leaf]) -> TypeAdapter[Any]:
    """What a room takes that has `Plain` built in, with the leaves of `site`."""
    monkeypatch.syspath_prepend(site)
    return TypeAdapter(with_plugins(Annotated[Plain | Plain, Field(discriminator="kind")], group, parent))


def test_the_leaf_of_the_page_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/how-to/extension.md").read_text()
    [toml], [code] = (re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("toml", "python"))
    groups = tomllib.loads(toml)["project"]["entry-points"]
    points = {group.removeprefix("overnight."): some for group, some in groups.items()}
    site = install(tmp_path / "site", "our_leaves", points)
    (site / "our_leaves").mkdir()
    (site / "our_leaves/brightness.py").write_text(code)
    leaf = leaves_of(site, monkeypatch, "predictors", Predictor).validate_python({"kind": "brightness", "scale": 0.5})
    images = np.repeat([10, 20, 30], 8 * 8 * 3).reshape(3, 8, 8, 3).astype(np.uint8)
    assert leaf.load()({"image": images})["brightness"].tolist() == [5, 10, 15]


WRONG = """
from typing import Literal
from overnight.tasks.config.settings import Leaf
from overnight.tasks.infer.predictor import Predictor

class Named(Leaf):
    kind: Literal["named"] = "named"

class Silent(Predictor):
    kind: Literal["silent"] = "silent"

FOUR = 4
"""


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("lost", "not_there:Lost", "importing not_there:Lost raised ModuleNotFoundError: No module named 'not_there'"),
        ("other", "wrong:Named", "in wrong:Named, found 'named'"),
        ("four", "wrong:FOUR", "expected wrong:FOUR to inherit from .*Leaf, found 4"),
        ("silent", "wrong:Silent", "expected wrong:Silent to have load, found none"),
    ],
)
def test_a_plugin_that_cannot_be_used_costs_only_the_jobs_that_name_it(
    kind: str, value: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"tests": {kind: value, "named": "wrong:Named"}}
    leaves = leaves_of(install(tmp_path, "some_leaves", points, wrong=WRONG), monkeypatch, "tests", Leaf)
    assert [leaves.validate_python({"kind": name}).kind for name in ("plain", "named")] == ["plain", "named"]
    with pytest.raises(ValidationError, match=f"plug-in {kind} of the package some-leaves cannot be used: .*{reason}"):
        leaves.validate_python({"kind": kind, "any": 1})


def test_a_kind_that_is_built_in_stays_and_the_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = install(tmp_path, "some_leaves", {"tests": {"plain": "wrong:Named"}}, wrong=WRONG)
    with pytest.warns(UserWarning, match="some-leaves: its plug-in for kind: plain is ignored"):
        leaves = leaves_of(site, monkeypatch, "tests", Leaf)
    assert isinstance(leaves.validate_python({"kind": "plain"}), Plain)


def test_a_kind_that_two_packages_bring_is_refused_and_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("first_package", "second_package"):
        install(tmp_path / "site", package, {"tests": {"named": f"{package}:Named"}}, **{package: WRONG})
    leaves = leaves_of(tmp_path / "site", monkeypatch, "tests", Leaf)
    with pytest.raises(ValidationError, match="named of the package first-package and second-package cannot be used"):
        leaves.validate_python({"kind": "named"})
