"""The cache of a node: filled once, by the first process, whole or not at all, and never emptied under a user."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from overnight.tasks.errors import AccessDenied, JobError
from overnight.tasks.storage import node_cache
from overnight.tasks.storage.node_cache import cached_folder

# A process that fills `model` in the cache, line by line as a test lets it, and prints what it does.
PROCESS = """
import sys
from pathlib import Path
from overnight.tasks.storage.node_cache import cached_folder

name, size = sys.argv[1], int(sys.argv[2])

def fill(folder):
    print("filling", sorted(path.name for path in folder.iterdir()), flush=True)
    (folder / "first").write_bytes(b"a" * (size // 2))
    print("half", flush=True)
    sys.stdin.readline()
    (folder / "second").write_bytes(b"b" * (size - size // 2))

print("asking", flush=True)
folder = cached_folder(name, size, "the model", fill)
print("ready", sorted(path.name for path in folder.iterdir()), flush=True)
sys.stdin.readline()
"""
FILLED = "ready ['first', 'second']"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(node_cache.FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


class Process:
    """A process of the node."""

    def __init__(self, name: str, size: int) -> None:
        command = [sys.executable, "-c", textwrap.dedent(PROCESS), name, str(size)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        self.process = subprocess.Popen(command, text=True, **pipes)  # type: ignore[call-overload]

    def line(self) -> str:
        return str(self.process.stdout.readline()).strip()

    def go_on(self) -> None:
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def waits(self) -> str:
        """The line on stderr with which it begins to wait for another process."""
        return str(self.process.stderr.readline()).strip()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    with contextlib.ExitStack() as stack:

        def started(name: str = "model", size: int = 10) -> Process:
            made = Process(name, size)
            stack.callback(made.process.communicate)
            stack.callback(made.process.kill)
            assert made.line() == "asking"
            return made

        yield started


def folder_of(name: str, size: int = 10) -> Path:
    def fill(folder: Path) -> None:
        (folder / "weights").write_bytes(b"w" * size)

    return cached_folder(name, size, f"model {name}", fill)


def names(cache: Path) -> set[str]:
    return {path.name for path in cache.iterdir() if path.is_dir()}


def left(cache: Path, name: str, used_at: int) -> None:
    """A folder of ten bytes that no process uses any more."""
    (cache / name).mkdir(parents=True)
    (cache / name / "weights").write_bytes(b"w" * 10)
    (cache / f"{name}.lock").touch()
    os.utime(cache / f"{name}.lock", (used_at, used_at))


def test_two_processes_fill_a_folder_once(start: Callable[..., Process]) -> None:
    first = start()
    assert (first.line(), first.line()) == ("filling []", "half")
    second = start()
    assert "waiting for another process of this node, which fetches the model" in second.waits()
    first.go_on()
    assert first.line() == FILLED
    assert second.line() == FILLED  # without "filling"


def test_a_fill_that_is_killed_leaves_nothing_that_counts_as_whole(start: Callable[..., Process], cache: Path) -> None:
    first = start()
    assert (first.line(), first.line()) == ("filling []", "half")
    second = start()
    second.waits()
    first.kill()
    assert names(cache) == {"model.part"}
    assert second.line() == "filling ['first']"  # it goes on with the files that are complete
    assert second.line() == "half"
    second.go_on()
    assert second.line() == FILLED
    assert names(cache) == {"model"}


def test_a_fill_that_fails_is_tried_again(cache: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "weights").write_bytes(b"w")
        raise ConnectionError("the network is gone")

    with pytest.raises(ConnectionError):
        cached_folder("model", 10, "the model", fail)
    assert names(cache) == {"model.part"}
    assert (folder_of("model") / "weights").read_bytes() == b"w" * 10


def test_the_folder_whose_last_use_is_the_oldest_goes_first(
    start: Callable[..., Process], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(node_cache.LIMIT, str(35 / 1e9))
    for place, name in enumerate(("first", "second", "third")):
        left(cache, name, 1000 + place)
    user = start("first")
    assert user.line() == "ready ['weights']"
    user.kill()
    folder_of("new")
    assert names(cache) == {"first", "third", "new"}


def test_a_link_in_the_cache_makes_room_and_what_it_leads_to_stays(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(node_cache.LIMIT, str(15 / 1e9))
    left(cache, "linked", 1000)
    (cache / "linked").rename(tmp_path / "elsewhere")
    (cache / "linked").symlink_to(tmp_path / "elsewhere")
    left(cache, "full", 1001)
    folder_of("new")
    assert names(cache) == {"new"}
    assert list((tmp_path / "elsewhere").iterdir())


def test_a_folder_that_another_process_uses_stays_beyond_the_limit(
    start: Callable[..., Process], cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(node_cache.LIMIT, str(15 / 1e9))
    user = start("used")
    user.line(), user.line(), user.go_on()
    assert user.line() == FILLED
    folder_of("new")
    assert names(cache) == {"used", "new"}
    assert "exceeds its limit" in caplog.text
    user.kill()
    folder_of("newer")
    assert names(cache) == {"new", "newer"}  # this process uses the first of them


def test_what_a_killed_fill_left_makes_room_too(
    start: Callable[..., Process], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = start("killed")
    killed.line(), killed.line()
    killed.kill()
    monkeypatch.setenv(node_cache.LIMIT, str(12 / 1e9))
    folder_of("new")
    assert names(cache) == {"new"}


@pytest.mark.parametrize(
    ("limit", "size", "error", "found"),
    [
        ("0.001", 2 * 10**6, JobError, "found 2.0 MB"),
        ("1e12", 10**18, AccessDenied, "expected 1,000,000,000.0 GB of free space"),
        ("much", 10, JobError, "found 'much'"),
        ("0", 10, JobError, "found '0'"),
        ("-1", 10, JobError, "found '-1'"),
        ("nan", 10, JobError, "found 'nan'"),
    ],
)
def test_a_model_without_room_and_a_limit_that_is_none_are_refused_before_a_byte_is_fetched(
    limit: str, size: int, error: type[Exception], found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(node_cache.LIMIT, limit)
    filled: list[Path] = []
    with pytest.raises(error, match=found):
        cached_folder("large", size, "the model", filled.append)
    assert not filled


def test_a_place_that_cannot_be_written_names_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(node_cache.FOLDER, str(tmp_path / "file/cache"))
    with pytest.raises(AccessDenied, match=f"file/cache.*{node_cache.FOLDER}"):
        folder_of("model")
