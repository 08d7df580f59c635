"""What is forked has what was imported before, and its caller's place; caller and forked process end together."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from overnight.flows.runs.early_imports import WORKER_IMPORTS
from overnight.tasks.errors import ContractError
from overnight.tasks.workers import fork_server
from overnight.tasks.workers.forked_process import Begun, Forked, ProcessDied, ask, in_process_of_its_own
from tests.chaos.runs import wait_for

ROOT = Path(__file__).parents[3]


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
            "imported": "pyclbr" in sys.modules,
            "random": np.random.random(),
        }

    def asks(self, question: Any) -> Any:
        return ask("question", question)

    def sleeps(self, file: str) -> None:
        leave_pid(Path(file))
        time.sleep(600)

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
    fork_server.preload(["no_such_module", "pyclbr"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOLD", "after the server had started")
    monkeypatch.syspath_prepend("/somewhere")
    first, second = (one(Forked(Thing, answer), "where") for _ in range(2))
    assert first["pid"] != second["pid"] != os.getpid()
    assert (first["folder"], first["variable"]) == (str(tmp_path), "after the server had started")
    assert "/somewhere" in first["path"]
    assert first["imported"]
    assert "pyclbr" not in sys.modules
    assert first["random"] != second["random"]


def threads_of_parent() -> list[str]:
    folder = Path(f"/proc/{os.getppid()}/task")
    return [(thread / "comm").read_text().strip() for thread in folder.iterdir()]


def test_what_workers_need_starts_no_thread_in_the_server_that_a_fork_would_lose(server: None) -> None:
    fork_server.preload([WORKER_IMPORTS])
    threads = in_process_of_its_own(threads_of_parent, answer)
    assert sorted(set(threads) - {"jemalloc_bg_thd"}) == [threads[0]]
    assert len(threads) <= 2


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
    from overnight.tasks.workers import fork_server
    from overnight.tasks.workers.forked_process import Forked, ending_together
    from tests.tasks.workers.test_fork_server import Thing, answer, one

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


def test_a_forked_process_that_dies_takes_with_it_a_caller_who_wants_that() -> None:
    dies = "one(thing, 'asks', os.kill(one(thing, 'where')['pid'], 9))"
    with caller(f"try:\n        with ending_together(): {dies}\n    finally: print('lives on')") as process:
        assert process.stdout
        process.stdout.readline()
        assert process.wait(30) == 1
        assert not process.stdout.read()


def test_others_are_told_that_it_died(thing: Forked) -> None:
    os.kill(one(thing, "where")["pid"], signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(ProcessDied):
            list(thing.call("times", 1))
    with pytest.raises(ProcessDied):
        in_process_of_its_own(partial(os._exit, 0), answer)


def test_work_in_a_process_of_its_own(server: None) -> None:
    assert in_process_of_its_own(os.getpid, answer) != os.getpid()
    assert in_process_of_its_own(partial(ask, "question", 3), answer) == ("question", 3, os.getpid())
    with pytest.raises(ContractError, match="no negative number"):
        in_process_of_its_own(partial(Thing, -1), answer)


def asking() -> Thing:
    """Made only when somebody is there to answer."""
    return Thing(ask("question", 5)[1])


def test_what_has_begun_is_used_by_the_first_who_wants_it(server: None) -> None:
    begun = Begun(asking)
    sent = pickle.loads(pickle.dumps(begun))
    thing = Forked(sent, answer)
    assert list(thing.call("times", 2)) == [0, 5]
    process = psutil.Process(one(thing, "where")["pid"])
    del thing
    wait_for("the process to end with him who used it", lambda: gone(process), 20)
    with pytest.raises(ProcessDied):
        Forked(begun, answer)


USER = """
    import pickle, sys
    from overnight.tasks.workers.forked_process import Forked

    list(Forked(pickle.loads(bytes.fromhex(sys.argv[1])), print).call("sleeps", sys.argv[2]))
"""


def test_it_ends_with_him_who_uses_it_whatever_it_is_doing(server: None, tmp_path: Path) -> None:
    begun, file = Begun(Thing), tmp_path / "pid"
    command = [sys.executable, "-c", textwrap.dedent(USER), pickle.dumps(begun).hex(), str(file)]
    with subprocess.Popen(command, cwd=ROOT) as user:
        try:
            wait_for("its work to begin", file.exists, 20)
            process = psutil.Process(int(file.read_text()))  # it may be gone right after the kill
        finally:
            user.kill()
    wait_for("the process to end", lambda: gone(process), 20)
    assert Path(begun.address).exists()  # not because nobody held it any more


def test_what_has_begun_and_nobody_used_ends_with_its_last_reference(server: None, tmp_path: Path) -> None:
    begun = Begun(partial(leave_pid, tmp_path / "pid"))
    wait_for("the process to begin", (tmp_path / "pid").exists, 20)
    process, address = psutil.Process(int((tmp_path / "pid").read_text())), Path(begun.address)
    assert address.exists()
    del begun
    wait_for("the process to end", lambda: gone(process), 20)
    assert not address.exists()


def leave_pid(file: Path) -> Thing:
    file.with_suffix(".new").write_text(str(os.getpid()))
    file.with_suffix(".new").rename(file)
    return Thing()


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


def test_a_switch_does_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(fork_server.ADDRESS, "0")
    with fork_server.for_local_ray():
        assert not fork_server.is_there()
