"""What a call leaves of itself in the caller's process: nothing."""

import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from pathlib import Path
from types import FrameType

import pytest

import overnight
from overnight.api.process_state import leaves_no_trace, restored
from overnight.flows.runs.cancellation import is_stopping, pause

STATE = """
import logging, os, signal, sys, warnings
import overnight

def state():
    root = logging.getLogger()
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    return dict(os.environ), os.getcwd(), list(sys.path), root.level, list(root.handlers), handlers, warnings.filters[:]

before = state()
print(sorted({"prefect", "ray", "torch", "pyarrow", "pydantic"} & set(sys.modules)))
assert isinstance(overnight.BackfillFailed("x"), overnight.OvernightError)
job = {"name": "a", "source": {"kind": "csv", "path": "in"}, "sink": {"kind": "csv", "path": "out"}}
print([entry.status for entry in overnight.status(job)])
try:
    overnight.run({**job, "name": "A"})
except overnight.JobError as error:
    print(error)
assert "prefect" in sys.modules
for was, now in zip(before, state()):
    assert was == now, (was, now)
"""


def test_the_import_is_cheap_and_calls_change_nothing_of_the_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STATE], cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    cheap, statuses, error = done.stdout.splitlines()
    assert (cheap, statuses) == ("[]", "['missing']")
    assert error.startswith("the job: name: expected text like daily-embeddings_2")


def test_what_a_body_changes_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "before")
    root, own = logging.getLogger(), logging.getLogger("a_library")
    own.setLevel(logging.INFO)
    before = dict(os.environ), list(sys.path), root.level, list(root.handlers), list(warnings.filters)
    with restored():
        os.environ.update(KEPT="after", NEW="1")
        del os.environ["PATH"]
        sys.path.append("/new")
        root.setLevel(logging.DEBUG)
        root.addHandler(logging.NullHandler())
        own.setLevel(logging.ERROR)
        warnings.simplefilter("ignore")
    assert (dict(os.environ), list(sys.path), root.level, list(root.handlers), list(warnings.filters)) == before
    assert own.level == logging.INFO


def test_an_exception_in_the_callers_thread_stops_the_run_and_is_raised_after_it() -> None:
    ended = []

    @leaves_no_trace
    def call() -> None:
        assert threading.current_thread() is not threading.main_thread()
        try:
            while True:
                signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)
                pause(0.05)
        finally:
            ended.append(is_stopping())

    def interrupt(_: int, frame: FrameType | None) -> None:
        """Raise as a scheduler's handler of SIGTERM does, once the caller waits for the result."""
        if any(found.f_code.co_name == "result" for found, _ in traceback.walk_stack(frame)):
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            call()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert ended == [True]
    assert not is_stopping()


def test_an_error_of_overnight_is_the_callers_exception() -> None:
    @leaves_no_trace
    def call() -> None:
        raise overnight.JobError("expected this")

    with pytest.raises(overnight.JobError, match="expected this"):
        call()
