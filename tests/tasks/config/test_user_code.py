import hashlib
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from overnight.tasks.config.user_code import fingerprint, import_target
from overnight.tasks.errors import JobError


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Writes files into an empty working directory, whose modules end with the test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(files):
        for name, text in files.items():
            path = Path(f"{name}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    return write


def test_the_working_directory_comes_after_installed_packages(project):
    mine = "import colorsys\nclass Model: shadowed = hasattr(colorsys, 'Model')"
    project({"colorsys": "class Model: ...", "mine": mine})
    sys.path.insert(0, "")
    sys.path.insert(0, os.getcwd())
    sys.modules.pop("colorsys", None)
    assert import_target("mine:Model", "infer").shadowed is False
    assert sys.path[-1] == os.getcwd()
    assert sys.path.count(os.getcwd()) == 1
    assert "" not in sys.path


def test_modules_of_the_user_s_own_may_be_called_tasks_and_flows(project, tmp_path: Path):
    project({"tasks": "class Model: name = 'mine'", "flows/steps": "def clean(): return 'mine'"})
    code = """
        from overnight.cli.main import main
        from overnight.tasks.config.user_code import import_target

        print(import_target("tasks:Model", "infer").name, import_target("flows.steps:clean", "preprocess")())
    """
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "mine mine\n", done.stderr


FILES = {
    "some_models": "class ResNet: ...\nclass Other: ...\ndepth = 3",
    "needy": "\nimport no_such_library",
    "raising": "x = 1\ny = x / 0",
    "misspelt": "def f(:",
    "shop/__init__": "",
    "shop/models": "class Model: ...",
}


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("some_models:Resnet", "expected Resnet in some_models, found ResNet"),
        ("some_models:depth", "expected a class or a function, found int 3"),
        ("needy:Model", "raised ModuleNotFoundError: No module named 'no_such_library' (needy.py, line 2)"),
        ("raising:M", "importing raising raised ZeroDivisionError: division by zero (raising.py, line 2)"),
        ("misspelt:f", "importing misspelt raised SyntaxError"),
        ("shop.model:Model", "expected a module shop.model"),
    ],
)
def test_a_target_that_cannot_be_imported_is_named_with_the_reason(project, target: str, reason: str):
    project(FILES)
    with pytest.raises(JobError) as caught:
        import_target(target, "preprocess")
    assert reason in str(caught.value)
    assert caught.value.stage == "preprocess"
    assert import_target("shop.models:Model", "infer").__name__ == "Model"


def test_the_fingerprint_follows_imports_within_the_working_directory_only(project):
    project(
        {
            "entry": "import json, numpy\nfrom parts import net\ndef load():\n    import late",
            "late": "",
            "unused": "",
            "parts/__init__": "",
            "parts/net": "from . import layers\nfrom .deep.block import Block",
            "parts/layers": "raise RuntimeError('never run')",
            "parts/deep/__init__": "",
            "parts/deep/block": "import entry",
        }
    )
    hashes = fingerprint("entry:load")
    parts = ["__init__", "deep/__init__", "deep/block", "layers", "net"]
    assert list(hashes) == ["entry.py", "late.py", *(f"parts/{part}.py" for part in parts)]
    assert hashes["parts/layers.py"] == hashlib.sha256(b"raise RuntimeError('never run')").hexdigest()
    assert "entry" not in sys.modules


def test_an_installed_module_is_hashed_alone_and_one_that_is_not_there_not_at_all(project):
    project({"json": "this is not the json that would be imported"})
    assert list(fingerprint("json.decoder:JSONDecoder")) == ["json/decoder.py"]
    with pytest.raises(JobError, match="nowhere_to_be_found"):
        fingerprint("nowhere_to_be_found:Model", "infer")
