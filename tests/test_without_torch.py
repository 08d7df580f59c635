"""`pytest --without-torch`: what it leaves out, and what it must not."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PLAIN = """
import pytest

def test_plain():
    pass

@pytest.mark.needs_torch
def test_marked():
    import torch
"""
GOOD = "def test_it():\n    pass\n"
# pytest on the folder sys.argv[1], where torch cannot be imported.
PROGRAM = """
import sys
from pathlib import Path

class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, NoTorch())
folder = Path(sys.argv[1])
sys.path.insert(0, str(folder.parent))
import pytest
import tests.without_torch
tests.without_torch.TESTS = folder
options = ["-p", "tests.without_torch", "-p", "no:cacheprovider", "--rootdir", str(folder.parent)]
sys.exit(pytest.main([*options, "--import-mode=importlib", *sys.argv[2:], str(folder)]))
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs these test files where torch cannot be imported; the exit status and the report."""
    folder = tmp_path / "tests"
    folder.mkdir()
    (tmp_path / "product.py").write_text("import torch\n")

    def run(at_least: int, **files: str) -> tuple[int, str]:
        for name, code in files.items():
            (folder / f"test_{name}.py").write_text(code)
        command = [sys.executable, "-c", PROGRAM, str(folder), f"--without-torch={at_least}"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_files_that_import_torch_and_marked_tests_are_left_out_and_named_and_too_few_tests_are_a_failure(
    run: Callable[..., tuple[int, str]],
) -> None:
    status, report = run(2, plain=PLAIN, torch="import torch\n\n" + GOOD)
    assert status == 1
    assert "1 passed, 1 deselected" in report
    assert "tests/test_torch.py (the file)" in report
    assert "tests/test_plain.py::test_marked" in report
    assert "expected at least 2 tests to pass, found 1" in report


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("def test_unmarked():\n    import torch\n", "test_other.py::test_unmarked"),
        ("import product\n\n" + GOOD, "No module named 'torch'"),
    ],
)
def test_other_tests_must_pass_and_other_modules_must_import(
    run: Callable[..., tuple[int, str]], code: str, told: str
) -> None:
    status, report = run(1, plain=PLAIN, other=code)
    assert status != 0
    assert told in report
