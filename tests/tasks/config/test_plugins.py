"""Leaves of an installed package, as pip leaves one behind: modules and a dist-info folder on the path."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image
from pydantic import Field, TypeAdapter, ValidationError

from overnight.tasks.config.plugins import with_plugins
from overnight.tasks.config.settings import Leaf

ROOT = Path(__file__).parents[3]
LEAVES = '''
"""Four leaves of a room each."""
from typing import Annotated, Any, Literal

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


class Silent(Predictor):
    kind: Literal["silent"] = "silent"


class Copies(ParquetSink):
    kind: Literal["copies"] = "copies"
'''
KINDS = {"sources": "records", "steps": "shout", "predictors": "lengths", "sinks": "copies"}
CLASSES = {"records": "Records", "shout": "Shout", "lengths": "Lengths", "copies": "Copies"}
JOB = {
    "name": "plugged",
    "source": {"kind": "records", "path": "in"},
    "preprocess": [{"kind": "shout", "column": "text"}],
    "inference": [{"kind": "lengths", "column": "text", "times": 2}],
    "sink": {"kind": "copies", "path": "out"},
}


def install(target: Path, package: str, points: dict[str, dict[str, str]], **modules: str) -> Path:
    """What `pip install --target` leaves behind: modules, and dist-info with entry points. The target."""
    information = target / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package.replace('_', '-')}\nVersion: 1.0\n")
    sections = [
        f"[overnight.{group}]\n" + "".join(f"{name} = {value}\n" for name, value in some.items())
        for group, some in points.items()
    ]
    (information / "entry_points.txt").write_text("\n".join(sections))
    for name, content in modules.items():
        (target / f"{name}.py").write_text(content)
    return target


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    points = {group: {kind: f"more_leaves:{CLASSES[kind]}"} for group, kind in KINDS.items()}
    points["steps"] |= {"lost": "not_there:Lost", "resize_image": "more_leaves:Shout"}
    points["predictors"] |= {
        "wrong_name": "more_leaves:Lengths",
        "no_leaf": "more_leaves:LEAVES",
        "room": "more_leaves:Shout",
        "silent": "more_leaves:Silent",
    }
    return install(tmp_path / "site", "more_leaves", points, more_leaves=LEAVES + "\nLEAVES = 4\n")


def overnight(folder: Path, site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", "from overnight.cli.main import main; main(prog_name='overnight')", *arguments]
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def write(folder: Path, **changes: object) -> None:
    (folder / "job.yaml").write_text(yaml.safe_dump(JOB | changes))


def test_leaves_of_a_package_have_the_typing_errors_and_schema_of_those_built_in(
    installed: Path, tmp_path: Path
) -> None:
    write(tmp_path, inference=[{"kind": "lengths", "column": "text", "tmes": 2}, {"kind": "lengths", "times": 0}])
    wrong = overnight(tmp_path, installed, "validate", "job.yaml")
    assert wrong.returncode == 2
    assert "inference.0.tmes: unknown key (did you mean times?); the keys of inference.0 are" in wrong.stderr
    assert "inference.1.times: expected a whole number of at least 1, found 0" in wrong.stderr
    assert "inference.1.column: is missing; expected text" in wrong.stderr
    schema = json.loads(overnight(tmp_path, installed, "validate", "--schema").stdout)
    lengths = schema["$defs"]["Lengths"]
    assert lengths["properties"]["times"]["description"] == "What a length is multiplied by."
    assert lengths["required"] == ["kind", "column"]


def test_a_plugin_that_cannot_be_used_costs_only_the_jobs_that_name_it(installed: Path, tmp_path: Path) -> None:
    models = [{"kind": kind, "name": kind, "any": 1} for kind in ("wrong_name", "no_leaf", "room", "silent")]
    write(tmp_path, preprocess=[{"kind": "lost"}, {"kind": "resize_image", "column": "text"}], inference=models)
    done = overnight(tmp_path, installed, "validate", "job.yaml")
    assert done.returncode == 2
    for line in (
        "preprocess.0: the plug-in lost of the package more-leaves cannot be used: importing not_there:Lost raised "
        "ModuleNotFoundError: No module named 'not_there'.",
        "preprocess.1.size: is missing",  # the built-in resize_image
        "inference.0: the plug-in wrong_name of the package more-leaves cannot be used: expected kind: "
        'Literal["wrong_name"] = "wrong_name" in more_leaves:Lengths, found \'lengths\'.',
        "inference.1: the plug-in no_leaf of the package more-leaves cannot be used: expected more_leaves:LEAVES to "
        "inherit from overnight.tasks.infer.predictor.Predictor, found 4.",
        "inference.2: the plug-in room of the package more-leaves cannot be used: expected more_leaves:Shout to",
        "inference.3: the plug-in silent of the package more-leaves cannot be used: expected more_leaves:Silent to "
        "have load, found none.",
        "more-leaves: its plug-in for kind: resize_image is ignored: this kind is built in",
    ):
        assert line in done.stderr


def test_init_offers_what_a_package_brings(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.records").write_text('{"says": "a"}\n')
    done = overnight(
        tmp_path, installed, "init", "--path", "in", "--work", "lengths", "--text-column", "says", "--name", "it"
    )
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load((tmp_path / "it.yaml").read_text())
    assert (written["source"]["kind"], written["inference"]) == (
        "records",
        [{"kind": "lengths", "model": "any", "column": "says"}],
    )


@pytest.mark.slow
def test_a_job_of_nothing_but_plugins_runs(
    installed: Path, tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.records").write_text('{"text": "a"}\n{"text": "bcd"}\n')
    (tmp_path / "in/b.jsonl").write_text('{"text": "not mine"}\n')
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    done = overnight(tmp_path, installed, "run", "job.yaml", "--json")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "out" / json.loads(done.stdout)["files"][0]
    rows = pq.read_table(file).to_pylist()
    assert [(row["text"], row["length"]) for row in rows] == [("A", 2), ("BCD", 6)]


@pytest.mark.slow
def test_the_leaf_of_the_page_is_one(tmp_path: Path, prefect_api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs/how-to/extension.md").read_text()
    [toml], [code] = (re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL) for language in ("toml", "python"))
    groups = tomllib.loads(toml)["project"]["entry-points"]
    points = {group.removeprefix("overnight."): some for group, some in groups.items()}
    site = install(tmp_path / "site", "our_leaves", points)
    (site / "our_leaves").mkdir()
    (site / "our_leaves/brightness.py").write_text(code)
    (tmp_path / "in").mkdir()
    for grey in (10, 20, 30):
        Image.new("RGB", (8, 8), (grey, grey, grey)).save(tmp_path / f"in/{grey}.png")
    write(
        tmp_path,
        source={"kind": "images", "path": "in"},
        preprocess=[{"kind": "resize_image", "size": 8}],
        inference=[{"kind": "brightness", "scale": 0.5}],
        sink={"kind": "parquet", "path": "out"},
    )
    monkeypatch.setenv("PREFECT_API_URL", prefect_api)
    done = overnight(tmp_path, site, "run", "job.yaml", "--json")
    assert done.returncode == 0, done.stderr
    rows = pq.read_table(tmp_path / "out" / json.loads(done.stdout)["files"][0]).to_pylist()
    assert {row["row_id"]: row["brightness"] for row in rows} == {"10.png": 5, "20.png": 10, "30.png": 15}


class Plain(Leaf):
    kind: Literal["plain"] = "plain"


def test_a_kind_that_two_packages_bring_is_refused_and_names_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from typing import Literal\nfrom overnight.tasks.config.settings import Leaf\n\nclass Twice(Leaf):\n"
        "    kind: Literal['twice'] = 'twice'\n"
    )
    for package in ("first_package", "second_package"):
        install(tmp_path / "site", package, {"tests": {"twice": f"{package}:Twice"}}, **{package: code})
    monkeypatch.syspath_prepend(tmp_path / "site")
    union = with_plugins(Annotated[Plain | Plain, Field(discriminator="kind")], "tests", Leaf)
    with pytest.raises(ValidationError, match=r"twice of the package first-package and second-package cannot be used"):
        TypeAdapter(list[union]).validate_python([{"kind": "plain"}, {"kind": "twice"}])
