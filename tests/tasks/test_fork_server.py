"""What is forked has what was imported before, and its caller's place; caller and forked process end together."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from tasks import fork_server
from tasks.errors import ContractError
from tasks.forked import Forked, ask
from tests.chaos.runs import wait_for

ROOT = Path(__file__).parents[2]


class Unpicklable(Exception):
    def __init__(self, first: int, second: int) -> None:
        super().__init__(first)


class Thing:
    """What lives elsewhere in these tests."""

    def __init__(self, number: int = 2) -> None:
        if number < 0:
            raise ContractError("expected no negative number")
        self.number = number

    def times(self, count: int) -> Iterator[int]:
        for i in range(count):
            yield i * self.number

    def where(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "folder": os.getcwd(),
            "variable": os.environ.get("TOLD"),
            "path": list(sys.path),
            "imported": "smtpd" in sys.modules,
            "random": np.random.random(),
        }

    def asks(self, question: Any) -> Any:
        return ask("question", question)

    def fails(self, error: Exception) -> None:
        raise error

    def fails_oddly(self) -> None:
        raise Unpicklable(1, 2)

    def size(self, table: pa.Table) -> int:
        return table.nbytes

    def table(self, rows: int) -> pa.Table:
        return pa.table({"x": np.arange(10**6)})[:rows]


def answer(what: str, question: Any) -> Any:
    if question is None:
        raise LookupError("asked for nothing")
    return (what, question, os.getpid())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of the test's own, beside the session's."""
    monkeypatch.delenv(fork_server.ADDRESS, raising=False)
    with fork_server.started():
        yield


def one(thing: Forked, method: str, *arguments: Any) -> Any:
    [found] = thing.call(method, *arguments)
    return found


@pytest.fixture
def thing(server: None) -> Forked:
    return Forked(Thing, answer)


def test_it_has_the_place_of_its_caller_and_what_was_imported_before(
    server: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fork_server.preload(["no_such_module", "smtpd"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOLD", "after the server had started")
    monkeypatch.syspath_prepend("/somewhere")
    first, second = (one(Forked(Thing, answer), "where") for _ in range(2))
    assert first["pid"] != second["pid"] != os.getpid()
    assert (first["folder"], first["variable"]) == (str(tmp_path), "after the server had started")
    assert "/somewhere" in first["path"]
    assert first["imported"]
    assert "smtpd" not in sys.modules
    assert first["random"] != second["random"]


def test_methods_yield_return_and_raise_as_they_would_here(thing: Forked) -> None:
    assert list(thing.call("times", 4)) == [0, 2, 4, 6]
    with pytest.raises(ContractError, match="broken") as caught:
        one(thing, "fails", ContractError("broken", "preprocess"))
    assert caught.value.stage == "preprocess"
    with pytest.raises(RuntimeError, match="Unpicklable: 1"):
        one(thing, "fails_oddly")
    with pytest.raises(ContractError, match="no negative number"):
        Forked(partial(Thing, -1), answer)
    assert list(thing.call("times", 1)) == [0]


def test_what_a_caller_does_not_wait_for_is_not_taken_for_the_next_answer(thing: Forked) -> None:
    few = thing.call("times", 1000)
    assert next(few) == 0
    few.close()
    assert list(thing.call("times", 2)) == [0, 2]


def test_of_a_slice_its_own_rows_alone_travel(thing: Forked) -> None:
    table = pa.table({"x": np.arange(10**6)})
    assert one(thing, "size", table[5:8]) == 24
    assert one(thing, "table", 3).nbytes == 24
    assert one(thing, "table", 3).equals(table[:3])


def test_it_may_ask_its_caller(thing: Forked) -> None:
    assert one(thing, "asks", 7) == ("question", 7, os.getpid())
    with pytest.raises(LookupError, match="asked for nothing"):
        one(thing, "asks", None)


CALLER = """
    import os, sys, time
    from tasks import fork_server
    from tasks.forked import Forked
    from tests.tasks.test_fork_server import Thing, answer, one

    with fork_server.started():
        thing = Forked(Thing, answer)
        print(one(thing, "where")["pid"], flush=True)
        {then}
"""


def caller(then: str) -> "subprocess.Popen[str]":
    code = textwrap.dedent(CALLER).format(then=then)
    environment = {name: value for name, value in os.environ.items() if name != fork_server.ADDRESS}
    return subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_a_killed_caller_takes_with_it_what_it_forked_and_its_server() -> None:
    with caller("time.sleep(600)") as process:
        assert process.stdout
        forked = psutil.Process(int(process.stdout.readline()))
        server = forked.parent()
        os.kill(process.pid, signal.SIGKILL)
        wait_for("the forked process to end", lambda: gone(forked), 20)
        assert server
        wait_for("the server to end", lambda: gone(server), 20)


def test_a_forked_process_that_dies_takes_its_caller_with_it() -> None:
    with caller("one(thing, 'asks', os.kill(one(thing, 'where')['pid'], 9))") as process:
        assert process.wait(30) == 1


def test_a_server_ends_with_the_body_and_one_that_is_there_is_used(server: None) -> None:
    address = os.environ[fork_server.ADDRESS]
    with fork_server.started():
        assert os.environ[fork_server.ADDRESS] == address
    assert fork_server.is_there()
    del os.environ[fork_server.ADDRESS]
    with fork_server.started():
        other = Path(os.environ[fork_server.ADDRESS])
        assert other.exists()
    assert not other.exists()
    assert not fork_server.is_there()
    os.environ[fork_server.ADDRESS] = address


def test_a_server_that_was_killed_is_not_there(server: None) -> None:
    assert fork_server.is_there()
    [process] = [child for child in psutil.Process().children() if os.environ[fork_server.ADDRESS] in child.cmdline()]
    process.kill()
    wait_for("the server to end", lambda: not fork_server.is_there(), 20)
    with fork_server.started():
        assert one(Forked(Thing, answer), "asks", 1) == ("question", 1, os.getpid())
