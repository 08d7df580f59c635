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
    """Writes files into an empty working directory whose modules are forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    known = set(sys.modules)

    def write(files):
        for name, text in files.items():
            path = Path(f"{name}.py")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    yield write
    for name in set(sys.modules) - known:
        del sys.modules[name]


def message_of(target):
    with pytest.raises(JobError) as caught:
        import_target(target, "preprocess")
    assert caught.value.stage == "preprocess"
    return str(caught.value)


def test_the_working_directory_comes_after_installed_packages(project):
    project(
        {"colorsys": "class Model: ...", "mine": "import colorsys\nclass Model: shadowed = hasattr(colorsys, 'Model')"}
    )
    sys.path.insert(0, "")
    sys.path.insert(0, os.getcwd())
    sys.modules.pop("colorsys", None)
    assert import_target("mine:Model", "infer").shadowed is False
    assert sys.path[-1] == os.getcwd()
    assert sys.path.count(os.getcwd()) == 1
    assert "" not in sys.path


def test_modules_of_the_user_s_own_may_be_called_tasks_and_flows(tmp_path: Path):
    (tmp_path / "flows").mkdir()
    (tmp_path / "tasks.py").write_text("class Model: name = 'mine'")
    (tmp_path / "flows/steps.py").write_text("def clean(): return 'mine'")
    code = """
        from overnight.cli.main import main
        from overnight.flows.batch_inference import batch_inference
        from overnight.tasks.config.user_code import import_target

        print(import_target("tasks:Model", "infer").name, import_target("flows.steps:clean", "preprocess")())
    """
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "mine mine\n", done.stderr


def test_a_missing_name_lists_what_is_near(project):
    project({"some_models": "class ResNet: ...\nclass Other: ..."})
    assert "expected Resnet in some_models, found ResNet" in message_of("some_models:Resnet")


def test_a_module_that_needs_what_is_not_installed_says_so(project):
    project({"needy": "\nimport no_such_library"})
    message = message_of("needy:Model")
    assert "importing needy raised ModuleNotFoundError: No module named 'no_such_library' (needy.py, line 2)" in message


def test_a_module_that_raises_is_shown_with_the_line(project):
    project({"raising": "x = 1\ny = x / 0"})
    assert "importing raising raised ZeroDivisionError: division by zero (raising.py, line 2)" in message_of(
        "raising:M"
    )
    project({"misspelt": "def f(:"})
    assert "importing misspelt raised SyntaxError" in message_of("misspelt:f")


def test_a_missing_module_inside_a_package_is_not_found(project):
    project({"shop/__init__": "", "shop/models": "class Model: ..."})
    assert "expected a module shop.model" in message_of("shop.model:Model")
    assert import_target("shop.models:Model", "infer").__name__ == "Model"


def test_a_constant_is_not_a_target(project):
    project({"numbers_here": "depth = 3"})
    assert "expected a class or a function, found int 3" in message_of("numbers_here:depth")


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
    assert list(hashes) == [
        "entry.py",
        "late.py",
        "parts/__init__.py",
        "parts/deep/__init__.py",
        "parts/deep/block.py",
        "parts/layers.py",
        "parts/net.py",
    ]
    assert hashes["parts/layers.py"] == hashlib.sha256(b"raise RuntimeError('never run')").hexdigest()
    assert "entry" not in sys.modules


def test_an_installed_module_is_hashed_alone(project):
    project({"json": "this is not the json that would be imported"})
    assert list(fingerprint("json.decoder:JSONDecoder")) == ["json/decoder.py"]


def test_a_module_that_is_not_there_has_no_fingerprint(project):
    with pytest.raises(JobError, match="expected a module nowhere_to_be_found"):
        fingerprint("nowhere_to_be_found:Model", "infer")
