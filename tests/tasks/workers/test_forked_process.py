"""An object in a forked process is used as if it were here, may ask its caller, and ends with who uses it."""

import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pytest

from overnight.tasks.errors import ContractError
from overnight.tasks.workers import fork_server, forked_process
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
            raise ContractError("expected no negative number", "infer")
        self.number = number

    def times(self, count: int) -> Iterator[int]:
        for i in range(count):
            yield i * self.number

    def pid(self) -> int:
        return os.getpid()

    def asks(self, question: Any) -> Any:
        return ask("question", question)

    def place(self) -> tuple[Any, ...]:
        return os.getcwd(), os.environ["TOLD"], os.environ["MORE"], "/somewhere" in sys.path

    def sleeps(self, file: str) -> None:
        leave_pid(Path(file))
        time.sleep(600)

    def fails(self, is_odd: bool) -> None:
        raise Unpicklable(1, 2) if is_odd else ContractError("broken", "preprocess")

    def size(self, table: pa.Table) -> int:
        return table.nbytes

    def table(self, rows: int) -> pa.Table:
        return pa.table({"x": np.arange(10**6)})[:rows]


class Meeting:
    """Its calls wait until so many are under way, and return the most that were."""

    def __init__(self, count: int) -> None:
        self.all, self.lock = threading.Barrier(count), threading.Lock()
        self.now = self.most = 0

    def meets(self) -> int:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.all.wait(20)
        with self.lock:
            self.now -= 1
        return self.most


def waiting(seconds: float) -> Thing:
    forked_process.SECONDS_RELEASED = seconds
    return Thing()


def answer(what: str, question: Any) -> Any:
    if question is None:
        raise LookupError("asked for nothing")
    return (what, question, os.getpid())


def leave_pid(file: Path) -> Thing:
    file.with_suffix(".new").write_text(str(os.getpid()))
    file.with_suffix(".new").rename(file)
    return Thing()


def asking() -> Thing:
    """Made only when somebody is there to answer."""
    return Thing(ask("question", 5)[1])


@pytest.fixture(autouse=True, scope="module")
def _server() -> Iterator[None]:
    with fork_server.started():
        fork_server.preload([__name__])  # once, instead of in each forked process
        yield


@pytest.fixture(params=[True, False], ids=["forked", "new"])
def thing(request: pytest.FixtureRequest) -> Forked:
    return Forked(Begun(Thing, forks=request.param), answer)


def one(thing: Forked, method: str, *arguments: Any) -> Any:
    [found] = thing.call(method, *arguments)
    return found


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_methods_yield_return_and_raise_as_they_would_here(thing: Forked) -> None:
    assert list(thing.call("times", 4)) == [0, 2, 4, 6]
    with pytest.raises(ContractError, match="broken") as caught:
        one(thing, "fails", False)
    assert caught.value.stage == "preprocess"
    with pytest.raises(RuntimeError, match="Unpicklable: 1"):
        one(thing, "fails", True)
    few = thing.call("times", 1000)
    assert next(few) == 0
    few.close()
    assert list(thing.call("times", 2)) == [0, 2], "replies that nobody waited for"
    with pytest.raises(ContractError, match="no negative number"):
        Forked(partial(Thing, -1), answer)


def test_of_a_slice_its_own_rows_alone_travel(thing: Forked) -> None:
    table = pa.table({"x": np.arange(10**6)})
    assert one(thing, "size", table[5:8]) == 24
    assert one(thing, "table", 3).nbytes == 24
    assert one(thing, "table", 3).equals(table[:3])
    assert one(thing, "size", table) == table.nbytes
    assert one(thing, "table", 10**6).equals(table), "what is large is sent apart"


def test_it_may_ask_its_caller(thing: Forked) -> None:
    assert one(thing, "asks", 7) == ("question", 7, os.getpid())
    with pytest.raises(LookupError, match="asked for nothing"):
        one(thing, "asks", None)
    assert one(thing, "asks", 8) == ("question", 8, os.getpid())
    assert not forked_process.is_forked()


def test_work_in_a_process_of_its_own() -> None:
    assert in_process_of_its_own(os.getpid, answer) != os.getpid()
    assert in_process_of_its_own(forked_process.is_forked, answer)
    assert in_process_of_its_own(partial(ask, "question", 3), answer) == ("question", 3, os.getpid())
    with pytest.raises(ContractError, match="no negative number"):
        in_process_of_its_own(partial(Thing, -1), answer)


def test_others_are_told_that_it_died(thing: Forked) -> None:
    os.kill(one(thing, "pid"), signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(ProcessDied):
            list(thing.call("times", 1))
    with pytest.raises(ProcessDied):
        in_process_of_its_own(partial(os._exit, 0), answer)


def test_what_has_begun_is_used_by_the_first_who_wants_it() -> None:
    begun = Begun(asking)
    thing = Forked(pickle.loads(pickle.dumps(begun)), answer)
    assert list(thing.call("times", 2)) == [0, 5]
    process = psutil.Process(one(thing, "pid"))
    del thing
    wait_for("the process to end with its user", lambda: gone(process), 20)
    with pytest.raises(ProcessDied):
        Forked(begun, answer)


@pytest.mark.parametrize("forks", [True, False])
def test_what_is_released_serves_the_next_user_alone(forks: bool) -> None:
    begun = Begun(asking, forks=forks)
    first = Forked(begun, answer)
    process = psutil.Process(one(first, "pid"))
    released = pickle.loads(pickle.dumps(first.release()))
    second = Forked(released, lambda *question: ("another", *question))
    assert one(second, "pid") == process.pid
    assert one(second, "asks", 7) == ("another", "question", 7)
    with pytest.raises(ProcessDied):
        Forked(released, answer)
    assert Forked(second.release(), answer).call("pid") is not None, "it can be released again"
    wait_for("the process to end with its user", lambda: gone(process), 20)
    assert not Path(begun.address).parent.exists()


@pytest.mark.parametrize("forks", [True, False])
def test_what_is_released_waits_for_a_user_without_its_starter_and_not_for_long(
    forks: bool,
) -> None:
    begun = Begun(partial(waiting, 1.0), forks=forks)
    process = psutil.Process(one(first := Forked(begun, answer), "pid"))
    released = pickle.loads(pickle.dumps(first.release()))
    del begun, first
    second = Forked(released, answer)
    assert one(second, "pid") == process.pid
    address = Path(second.release().address)
    wait_for("the process to end", lambda: gone(process), 20)
    assert not address.parent.exists()


def test_what_is_released_ends_when_it_is_told_to() -> None:
    process = psutil.Process(one(first := Forked(Begun(Thing), answer), "pid"))
    first.release().end()
    wait_for("the process to end", lambda: gone(process), 20)


def test_several_threads_call_at_once_as_far_as_was_asked_for() -> None:
    for calls_at_once in (1, 2, 40):  # an endpoint has many
        thing = Forked(Begun(partial(Meeting, calls_at_once), forks=False), answer, calls_at_once=calls_at_once)
        count = 2 * calls_at_once
        with ThreadPoolExecutor(count) as threads:
            assert (
                list(threads.map(lambda _, thing=thing: one(thing, "meets"), range(count))) == [calls_at_once] * count
            )


def test_a_new_process_has_the_place_of_its_caller_and_the_variables_that_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOLD", "by the caller")
    monkeypatch.syspath_prepend("/somewhere")
    thing = Forked(Begun(Thing, forks=False, environment={"MORE": "given"}), answer)
    assert one(thing, "place") == (str(tmp_path), "by the caller", "given", True)


def test_what_has_begun_and_nobody_used_ends_with_its_last_reference(tmp_path: Path) -> None:
    begun = Begun(partial(leave_pid, tmp_path / "pid"))
    wait_for("the process to begin", (tmp_path / "pid").exists, 20)
    process, address = psutil.Process(int((tmp_path / "pid").read_text())), Path(begun.address)
    assert address.exists()
    del begun
    wait_for("the process to end", lambda: gone(process), 20)
    assert not address.exists()


# Each prints the id of the forked process; the last one ends by itself.
CALLERS = {
    "its caller is killed": "time.sleep(600)",
    "its user is killed while it works": """
        list(Forked(pickle.loads(bytes.fromhex(sys.argv[1])), print).call("sleeps", sys.argv[2]))
    """,
    "it dies": """
        try:
            with ending_together():
                one(thing, "asks", os.kill(pid, 9))
        finally:
            print("lives on")
    """,
}


@pytest.mark.parametrize("end", CALLERS)
def test_caller_and_forked_process_end_together(end: str, tmp_path: Path) -> None:
    code = f"""
import os, pickle, sys, time
from overnight.tasks.workers.forked_process import Forked, ending_together
from tests.tasks.workers.test_forked_process import Thing, answer, one

thing = Forked(Thing, answer)
pid = one(thing, "pid")
print(pid, flush=True)
{textwrap.dedent(CALLERS[end])}
"""
    begun, file = Begun(Thing), tmp_path / "pid"
    command = [sys.executable, "-c", code, pickle.dumps(begun).hex(), str(file)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as caller:
        try:
            assert caller.stdout
            processes = [psutil.Process(int(caller.stdout.readline()))]
            if end == "it dies":
                assert caller.wait(30) == 1
                assert not caller.stdout.read()
            elif "while it works" in end:
                wait_for("its work to begin", file.exists, 20)
                processes.append(psutil.Process(int(file.read_text())))
        finally:
            caller.kill()
    wait_for("the processes to end", lambda: all(map(gone, processes)), 20)
    assert Path(begun.address).parent.exists()  # not because nobody held it any more
