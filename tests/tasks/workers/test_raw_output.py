"""What C code and child processes write in a worker is collected with what Python prints, each line once."""

from collections import Counter
from pathlib import Path

import pytest

from overnight.tasks.workers.raw_output import RawOutput, raw_outputs
from tests.tasks.workers.test_user_output import told_by


def test_c_code_and_child_processes_are_told_with_their_source_and_what_python_printed_once(tmp_path: Path) -> None:
    code = """
        import ctypes, os, subprocess
        log = os.open("worker-0-0-1.out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.write(1, b"before\\n")
        with console.collected(run, "infer m:M"):
            print("python")
            os.write(1, b"raw https://me:secret@host/\\n:task_name:x\\n")
            ctypes.CDLL(None).puts(b"from C")
            subprocess.run(["echo", "child"])
            print("python")
            sys.stdout.write("50%\\r100%\\n")
            os.write(1, b"no end")
        os.write(1, b"after\\n")
        with console.collected(run, "infer m:M"):
            os.write(1, b"python\\n")
    """
    texts = ["python", "python", "100%", "raw https://***:***@host/", "from C", "child", "no end", "python"]
    assert sorted(told_by(tmp_path, code)) == sorted(f"infer m:M: {text}" for text in texts)


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
