"""What a call leaves of itself in the caller's process: nothing."""

import logging
import logging.config
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
from prefect.logging.handlers import APILogHandler

import overnight
from overnight.api.process_state import leaves_no_trace, restored
from overnight.flows.runs.cancellation import is_stopping, pause

CALLS = """
import logging, os, signal, sys
import overnight

def state():
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    logs = [(log.level, log.propagate, log.disabled, log.handlers[:]) for log in LOGGERS]
    return dict(os.environ), os.getcwd(), list(sys.path), sys.excepthook, handlers, logs

LOGGERS = [logging.getLogger(name) for name in ("", "prefect", "prefect.flow_runs", "ray", "ray.data", "uvicorn")]
for log in LOGGERS:
    log.addHandler(logging.FileHandler(f"{log.name}.log", mode="w"))
before = state()
print(sorted({"prefect", "ray", "torch", "pyarrow", "pydantic"} & set(sys.modules)))
job = {"name": "a", "source": {"kind": "csv", "path": "in"}, "sink": {"kind": "csv", "path": "out"}}
print([entry.status for entry in overnight.status(job)])
try:
    overnight.run({**job, "name": "A"})
except overnight.JobError as error:
    print(error)
assert "prefect" in sys.modules and "ray" in sys.modules
for was, now in zip(before, state()):
    assert was == now, (was, now)
logging.getLogger("ray.data").critical("a line after the call")
assert open("ray.data.log").read() == "a line after the call\\n"
"""


def test_the_import_is_cheap_and_calls_change_nothing_of_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CALLS]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    cheap, statuses, error = done.stdout.splitlines()
    assert (cheap, statuses) == ("[]", "['missing']")
    assert error.startswith("the job: name: expected text like daily-embeddings_2")


def test_what_a_body_changes_is_put_back_and_no_handler_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KEPT", "before")
    root, own, keep = logging.getLogger(), logging.getLogger("own_library"), logging.Filter()
    file = logging.FileHandler(tmp_path / "own.log", "w")
    monkeypatch.setattr(own, "handlers", [file])
    monkeypatch.setattr(own, "filters", [keep])

    def state() -> list[object]:
        hooks = sys.excepthook, threading.excepthook, logging.getLogRecordFactory(), signal.getsignal(signal.SIGUSR2)
        logs = [(log.handlers[:], log.filters[:], log.level, log.propagate, log.disabled) for log in (root, own)]
        return [dict(os.environ), list(sys.path), list(warnings.filters), hooks, logs]

    before = state()

    @restored()
    def call() -> None:
        os.environ.update(KEPT="after", NEW="1")
        del os.environ["PATH"]
        sys.path.append("/new")
        warnings.simplefilter("ignore")
        root.setLevel(logging.DEBUG)
        root.addHandler(logging.NullHandler())
        logging.config.dictConfig({"version": 1, "loggers": {"own_library": {"level": "INFO", "propagate": False}}})
        own.disabled = True
        own.removeFilter(keep)
        file.setFormatter(logging.Formatter("changed %(message)s"))
        file.setLevel(logging.ERROR)
        logging.setLogRecordFactory(logging.makeLogRecord)
        sys.excepthook = threading.excepthook = lambda *found: None
        signal.signal(signal.SIGUSR2, lambda *found: None)
        raise KeyError

    with pytest.raises(KeyError):
        call()
    assert state() == before
    own.warning("a line")
    assert (tmp_path / "own.log").read_text() == "a line\n"
    file.close()


def test_the_prefect_server_gets_the_log_of_a_run_when_the_caller_has_handlers_on_its_loggers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log, own = logging.getLogger("prefect.flow_runs"), logging.NullHandler()
    monkeypatch.setattr(log, "handlers", [own])
    monkeypatch.setattr(logging.getLogger("prefect"), "level", logging.NOTSET)

    @leaves_no_trace
    def call() -> tuple[bool, bool]:
        return any(isinstance(handler, APILogHandler) for handler in log.handlers), log.isEnabledFor(logging.INFO)

    assert call() == (True, True)
    assert (log.handlers, logging.getLogger("prefect").level) == ([own], logging.NOTSET)


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
