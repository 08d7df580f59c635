"""What of the working folder travels to a cluster, what stays, and what is too much."""

import os
from pathlib import Path
from typing import Any

import pytest

from overnight.flows.runs import working_folder as module
from overnight.flows.runs.working_folder import working_folder
from overnight.tasks.errors import OvernightError

TRAVELS = {
    "my_models.py": "labels = open('labels.csv').read()",
    "labels.csv": "cat",
    ".env": "A=1",
    "weights.pt": "weights",
    "package/__init__.py": "",
    "package/words.txt": "some",
    "photos/notes.txt": "text",
    "big/small.txt": "kept",
    ".rayignore": "/scratch/\n",
}
DATA = ("photos/a.jpg", "photos/b.JPG", "out.parquet", "records.tfrecord.gz", "model.safetensors", "run.log")
IGNORED = ("package/__pycache__/__init__.pyc", ".git/HEAD", ".venv/lib/a.py", "env/pyvenv.cfg", "env/lib/a.py")
IGNORED += (
    "big/large.txt",
    "scratch/a.txt",
    "prefect/profiles.toml",
    "prefect/prefect.db",
    "home/overnight-login.toml",
)


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write(tmp_path, TRAVELS | dict.fromkeys([*DATA, *IGNORED], "stays") | {"big/.gitignore": "*\n!small.txt\n"})
    return tmp_path


def test_modules_and_their_files_travel_and_data_stays(folder: Path) -> None:
    found = working_folder(folder)
    assert found.sizes == {name: len(text) for name, text in TRAVELS.items()}
    assert found.size == sum(found.sizes.values())
    assert found.left_out == {
        ".jpg": 2,
        ".parquet": 1,
        ".tfrecord.gz": 1,
        ".safetensors": 1,
        ".log": 1,
        "home of Prefect": 2,
    }
    assert str(found).startswith(
        f"sent to the cluster: 9 files of {folder}, 0.0 MiB; left out: 2 x home of Prefect, 2 x .jpg, "
    )


def test_links_are_followed_but_not_in_a_circle_and_what_is_no_file_stays(tmp_path: Path) -> None:
    """Overnight's own folder has such links: without `overnight/flows`, workers found no module of this name."""
    for name in ("package", "src"):
        (tmp_path / name).mkdir()
    (tmp_path / "src/a.py").write_text("")
    (tmp_path / "package/inner").symlink_to("../src")
    (tmp_path / "zoo").symlink_to("src")
    (tmp_path / "src/loop").symlink_to(tmp_path)
    (tmp_path / "b.py").symlink_to("src/a.py")
    (tmp_path / "dangling.py").symlink_to("nowhere")
    os.mkfifo(tmp_path / "fifo")
    assert set(working_folder(tmp_path).sizes) == {"src/a.py", "package/inner/a.py", "zoo/a.py", "b.py"}


def test_a_folder_that_cannot_be_read_is_counted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refusing(path: Path) -> Any:
        if Path(path).name == "package":
            raise PermissionError(path)
        return scandir(path)

    monkeypatch.setattr(module.os, "scandir", refusing)
    found = working_folder(folder)
    assert set(found.sizes) == {name for name in TRAVELS if not name.startswith("package/")}
    assert found.left_out["unreadable folder"] == 1


def test_what_is_too_large_is_refused_with_the_largest_entries(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_BYTES", 2**20)
    (folder / "many").mkdir()
    for number in range(3):
        (folder / f"many/{number}.csv").write_bytes(bytes(2**20))
    (folder / "one.csv").write_bytes(bytes(2 * 2**20))
    largest = r"many \(3.0 MiB\), one.csv \(2.0 MiB\), my_models.py \(0.0 MiB\)"
    with pytest.raises(
        OvernightError, match=rf"at most 1.0 MiB .* found 5.0 MiB in {folder}: {largest}\..*\.rayignore"
    ):
        working_folder(folder).check()


def test_the_folder_that_is_sent_has_exactly_what_travels(folder: Path) -> None:
    with working_folder(folder).linked() as sent:
        found = {str(path.relative_to(sent)): path.read_text() for path in sent.rglob("*") if path.is_file()}
    assert found == TRAVELS
    assert not sent.exists()


def test_the_folder_of_a_job_file_elsewhere_travels_behind_the_working_folder(tmp_path: Path) -> None:
    own = {"helpers.py": "A = 1", "my_models.py": "B = 3"}
    write(tmp_path, {"here/helpers.py": "A = 1", "job/helpers.py": "A = 2", "job/my_models.py": "B = 3"})
    with working_folder(tmp_path / "here", tmp_path / "job").linked() as sent:
        assert {path.name: path.read_text() for path in sent.iterdir()} == own
    assert working_folder(tmp_path, tmp_path / "job").beside is None  # it travels as a folder of the working folder
