import hashlib
import os
import sys
from pathlib import Path

import pytest

from tasks.errors import JobError
from tasks.targets import fingerprint, import_target


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
    assert "expected a module shop.model, installed or in the working directory" in message_of("shop.model:Model")
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
