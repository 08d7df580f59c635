"""What C code and child processes write in a worker is collected with what Python prints, each line once."""

from collections import Counter
from pathlib import Path

import pytest

from overnight.tasks.workers.raw_output import RawOutput, raw_outputs
from tests.tasks.workers.test_user_output import told_by

IN_A_WORKER = """
    import ctypes, os, subprocess
    log = os.open("worker-0-0-1.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
"""


def test_c_code_and_child_processes_are_told_with_their_source(tmp_path: Path) -> None:
    code = (
        IN_A_WORKER
        + """
    os.write(1, b"before\\n")
    with console.collected(run, "infer m:M"):
        print("python")
        os.write(1, b"raw https://me:secret@host/\\n:task_name:x\\n")
        ctypes.CDLL(None).puts(b"from C")
        subprocess.run(["echo", "child"])
        print("python")
        os.write(1, b"no end")
    os.write(1, b"after\\n")
    with console.collected(run, "infer m:M"):
        os.write(1, b"python\\n")
"""
    )
    told = told_by(tmp_path, code)
    assert Counter(told) == Counter(
        f"infer m:M: {text}"
        for text in ("python", "python", "raw https://***:***@host/", "from C", "child", "no end", "python")
    )


def test_what_python_printed_is_told_once_also_where_a_stream_holds_it(tmp_path: Path) -> None:
    code = (
        IN_A_WORKER
        + """
    with console.collected(run, "infer m:M"):
        for number in range(3):
            print("line", number)
        sys.stdout.write("50%\\r100%\\n")
"""
    )
    assert told_by(tmp_path, code) == [f"infer m:M: {text}" for text in ("line 0", "line 1", "line 2", "100%")]


def test_output_that_is_no_log_of_a_worker_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.readlink", lambda place: "/home/me/run.log")
    assert raw_outputs() == []


def test_a_line_is_told_when_it_has_its_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_bytes(b"old\n")
    with file.open("ab", buffering=0) as written, file.open("rb", buffering=0) as read:
        raw = RawOutput(read)
        raw.skip()
        written.write(b"one\ntw")
        assert list(raw.lines(Counter(), is_last=False)) == ["one"]
        written.write(b"o\n")
        assert list(raw.lines(Counter(), is_last=False)) == ["two"]
