"""What user code prints and logs is collected line by line, in bounds, in the process where it happens."""

import json
import logging
import re
import subprocess
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any

from overnight.tasks.workers import fork_server, user_output
from overnight.tasks.workers.forked_process import in_process_of_its_own
from overnight.tasks.workers.supervisor import Supervisor
from tests.tasks.runs import make_run

BEGINNING = """
    import json, logging, sys, threading, time, warnings
    from pathlib import Path
    from overnight.tasks.workers import user_output as console
    from overnight.tasks.workers import supervisor
    from tests.tasks.runs import make_run

    told = []
    supervisor.emit = lambda run, event: told.extend(event.lines)
    run = make_run("/nowhere")
"""
END = """
    Path("told.json").write_text(json.dumps(told))
"""


def told_by(folder: Path, code: str) -> list[str]:
    """Return the collected lines of a process that runs `code`, each from its source on, without the worker."""
    (folder / "own.py").write_text(textwrap.dedent(BEGINNING) + textwrap.dedent(code) + textwrap.dedent(END))
    environment_paths = [str(Path(__file__).resolve().parents[3])]
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {environment_paths}; import runpy; "
               "runpy.run_path('own.py', run_name='own')"]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    lines: list[str] = json.loads((folder / "told.json").read_text())
    heads, texts = zip(*[line.split("] ", 1) for line in lines], strict=True) if lines else ((), ())
    return [f"{head.split(' ', 1)[1].rsplit(' [', 1)[0]}: {text}" for head, text in zip(heads, texts, strict=True)]


def test_what_is_printed_while_user_code_runs_is_told_with_its_source(tmp_path: Path) -> None:
    code = """
        print("before")
        with console.collected(run, "preprocess steps:clean"):
            print("a", 1)
            sys.stderr.write("to stderr\\n")
            sys.stdout.writelines(["one ", "line\\n"])
            with console.collected(run, "infer m:M"):
                thread = threading.Thread(target=print, args=["from a thread"])
                thread.start()
                thread.join()
                for percent in (1, 50, 100):
                    print(f"\\r{percent}%", end="")
                print()
                print("x" * 5000)
                print("asked https://me:secret@host/path?key=secret")
                print("no end of line", end="")
            with console.left_alone(), console.collected(run, "infer m:M"):
                sys.__stdout__.write("left alone")
        print("after")
    """
    assert told_by(tmp_path, code) == [
        "preprocess steps:clean: a 1",
        "preprocess steps:clean: to stderr",
        "preprocess steps:clean: one line",
        "infer m:M: from a thread",
        "infer m:M: 100%",
        f"infer m:M: {'x' * 1000} ... (of 5,000 characters)",
        "infer m:M: asked https://***:***@host/path?key=***",
        "preprocess steps:clean: no end of line",
    ]


def test_without_a_configuration_own_messages_and_all_warnings_are_told(tmp_path: Path) -> None:
    code = """
        with console.collected(run, "infer m:M"):
            logging.getLogger("mine").info("loaded")
            logging.getLogger("mine").debug("detail")
            library = logging.getLogger("library")
            for level in (logging.INFO, logging.WARNING):
                file = "/x/site-packages/library.py"
                library.handle(library.makeRecord("library", level, file, 1, "of it", (), None))
            warnings.warn("old")
            logging.basicConfig(level=logging.DEBUG, format="mine %(message)s")
            logging.getLogger("mine").debug("detail")
    """
    loaded, of_library, warned, *_, configured = told_by(tmp_path, code)
    assert (loaded, of_library) == ("infer m:M: INFO mine: loaded", "infer m:M: WARNING library: of it")
    assert "UserWarning: old" in warned
    assert configured == "infer m:M: mine detail", "a configuration of the user's holds"


def test_lines_beyond_the_bound_are_counted(tmp_path: Path) -> None:
    code = """
        console.time.monotonic = lambda: 0.0
        with console.collected(run, "infer m:M"):
            for row in range(1000):
                print("row", row)
    """
    told = told_by(tmp_path, code)
    assert told[99] == "infer m:M: row 99"
    counts = [re.fullmatch(r"infer m:M: \((\d+) lines left out: more than 100 a second\)", line) for line in told[100:]]
    assert sum(int(count[1]) for count in counts if count) == 900  # a note at each message to the supervisor


def test_a_line_arrives_before_its_call_has_ended(tmp_path: Path) -> None:
    code = """
        with console.collected(run, "infer m:M"):
            print("last words")
            until = time.monotonic() + 30
            while not told and time.monotonic() < until:
                time.sleep(0.01)
            arrived = len(told)
        told[:] = told[:arrived]
    """
    assert told_by(tmp_path, code) == ["infer m:M: last words"]


def test_garbage_that_prints_as_it_goes_does_not_stop_the_process(tmp_path: Path) -> None:
    code = """
        class Garbage:
            def __del__(self):
                print("gone")

        def monotonic(garbage=[Garbage()]):  # it is asked for while the collector has its lock
            garbage.clear()
            return 0.0

        console.time.monotonic = monotonic
        with console.collected(run, "infer m:M"):
            print("line")
    """
    assert sorted(told_by(tmp_path, code)) == ["infer m:M: gone", "infer m:M: line"]


def says_something(run: Any) -> None:
    with user_output.collected(run, "infer m:M"):
        print("printed")
        logging.getLogger("tests").info("logged")


def test_what_a_forked_process_writes_is_told_by_the_one_that_it_works_for(tmp_path: Path) -> None:
    state = Supervisor()
    with fork_server.started():
        in_process_of_its_own(partial(says_something, make_run(tmp_path)), lambda run, on, event: on(state, event))
    lines = [line.split("] ", 1)[1] for line in state.lines_since(0)[1]]
    assert lines == ["printed", "INFO tests: logged"]
