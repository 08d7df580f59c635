"""The tests that need no PyTorch, in an environment that lacks it: `pytest --without-torch=AT_LEAST`.

What needs PyTorch says so itself, in one of two ways, and is left out:

- a test file imports torch or transformers when it is imported;
- a test carries the mark `needs_torch`.

Every other test must pass. The end of the report names what was left out. The run fails if fewer than AT_LEAST tests
passed, so a list that grows by mistake is seen.
"""

import re
from collections import Counter
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent
MISSING = re.compile(r"^E\s+ModuleNotFoundError: No module named '(?:torch|transformers)'", re.MULTILINE)
IMPORTING = re.compile(r"^(\S+?):\d+: in <module>$", re.MULTILINE)

_left_out: Counter[str] = Counter()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--without-torch",
        type=int,
        metavar="AT_LEAST",
        help="leave out the tests that need PyTorch, and fail if fewer than AT_LEAST pass",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs_torch: the test needs PyTorch; see tests/without_torch.py")
    _left_out.clear()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport, Any]:
    report = yield
    if _at_least(collector.config) is None or not report.failed or not isinstance(collector, pytest.Module):
        return report
    text = str(report.longrepr)
    # Keras imports torch too: what counts is which file of this folder began.
    importing = [file for file in IMPORTING.findall(text) if "site-packages" not in file]
    # A module of Overnight that imports torch when it is imported is an error: its tests would be lost in silence.
    if MISSING.search(text) and importing and _is_test(Path(collector.config.rootpath, importing[-1])):
        _left_out[f"{collector.nodeid} (the file)"] += 1
        report.outcome, report.longrepr = "passed", None
        report.result = []
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if _at_least(config) is None:
        return
    marked = [item for item in items if item.get_closest_marker("needs_torch")]
    _left_out.update(item.nodeid.partition("[")[0] for item in marked)
    config.hook.pytest_deselected(items=marked)
    items[:] = [item for item in items if item not in marked]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    at_least = _at_least(session.config)
    if hasattr(session.config, "workeroutput"):  # a worker of pytest-xdist; the controller counts
        session.config.workeroutput["left_out"] = dict(_left_out)
    elif at_least is not None and exitstatus == pytest.ExitCode.OK and _passed(session.config) < at_least:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what a worker of pytest-xdist left out. Each worker collects all tests."""
    _left_out.update(Counter(getattr(node, "workeroutput", {}).get("left_out", {})) - _left_out)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    at_least = _at_least(config)
    if at_least is None:
        return
    terminalreporter.section("left out, because they need PyTorch")
    for name, count in sorted(_left_out.items()):
        terminalreporter.line(name if count == 1 else f"{name} ({count} cases)")
    if _passed(config) < at_least:
        terminalreporter.line(f"expected at least {at_least} tests to pass, found {_passed(config)}", red=True)


def _at_least(config: pytest.Config) -> int | None:
    found: int | None = config.getoption("--without-torch")
    return found


def _passed(config: pytest.Config) -> int:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return len(reporter.stats.get("passed", [])) if reporter else 0


def _is_test(file: Path) -> bool:
    return TESTS in file.resolve().parents
