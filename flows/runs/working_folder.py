"""The files of the working folder that a run sends to a Ray cluster, so that workers find the user's modules.

The files of the job file's folder travel too. Left out are data by their extension (images, audio, video, PDF, binary
tables), weights and logs, folders that begin with a dot, virtual environments, Prefect's home with its logins, and what
a `.gitignore` or `.rayignore` excludes. A link to a folder is followed, unless it leads to a folder above it.
"""

import contextlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import get_args

from pathspec import GitIgnoreSpec

from overnight.tasks.errors import OvernightError
from overnight.tasks.ingest.kinds import Files

MOST_BYTES = 512 * 2**20  # as Ray's limit for a package
BESIDE_CODE = ("text", "uris", "csv", "jsonl", "numpy")  # sources whose files may also be labels, prompts or settings
DATA = [source for source in get_args(Files) if source.model_fields["kind"].default not in BESIDE_CODE]
LEFT_OUT = (*chain.from_iterable(source.extensions for source in DATA), ".safetensors", ".log")
IGNORING = (".gitignore", ".rayignore")  # which Ray follows, too
OF_PREFECT = {"profiles.toml", "overnight-login.toml"}  # a folder that has one of them is a home of Prefect
NAMED = 3  # entries in the message of a folder that is too large


@dataclass(frozen=True)
class WorkingFolder:
    root: Path
    sizes: dict[str, int]  # the bytes of each file, by its path relative to `root`
    left_out: Counter[str]  # other files of data, by extension, unreadable folders, and homes of Prefect
    beside: "WorkingFolder | None" = None  # the folder of a job file that is elsewhere; files of `root` come first

    @property
    def files(self) -> dict[str, Path]:
        """Return the place of each file on this machine, by its path in the folder that travels."""
        beside = self.beside.files if self.beside else {}
        return beside | {path: self.root / path for path in self.sizes}

    @property
    def size(self) -> int:
        return sum(self.sizes.values()) + (self.beside.size if self.beside else 0)

    def check(self) -> None:
        """Raise `OvernightError` if the files are too large to send. The message names the largest entries."""
        if self.size <= MOST_BYTES:
            return
        entries: Counter[str] = Counter()
        for folder in filter(None, (self, self.beside)):
            for path, size in folder.sizes.items():
                entries[path.partition(os.sep)[0]] += size
        largest = ", ".join(f"{name} ({_mib(size)})" for name, size in entries.most_common(NAMED))
        raise OvernightError(
            f"expected at most {_mib(MOST_BYTES)} of files to send from the working directory to the Ray cluster, "
            f"found {_mib(self.size)} in {self.root}: {largest}. Run the command in the folder of the job's modules, "
            "or exclude what they do not need in .rayignore, which has the form of .gitignore."
        )

    @contextlib.contextmanager
    def linked(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory(prefix="overnight-sent-") as folder:
            for path, file in self.files.items():
                link = Path(folder, path)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file)
            yield Path(folder)

    def __str__(self) -> str:
        count = len(self.files)
        roots = f"{self.root} and {self.beside.root}" if self.beside else str(self.root)
        sentence = f"sent to the cluster: {count:,} file{'s' * (count != 1)} of {roots}, {_mib(self.size)}"
        if not self.left_out:
            return sentence
        counts = ", ".join(f"{number:,} x {extension}" for extension, number in self.left_out.most_common())
        return f"{sentence}; left out: {counts}"

    def add(self, folder: Path, ignoring: list[tuple[Path, GitIgnoreSpec]], above: frozenset[str]) -> None:
        """Add the files below `folder`. `ignoring` has the rules of the folders above it, and `above` their paths."""
        real = os.path.realpath(folder)
        if real in above:
            return
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except PermissionError:
            self.left_out["unreadable folder"] += 1
            return
        names = {entry.name for entry in entries}
        if "pyvenv.cfg" in names:  # a virtual environment
            return
        if names & OF_PREFECT:
            self.left_out["home of Prefect"] += 1
            return
        for name in IGNORING:
            if name in names:
                lines = (folder / name).read_text(errors="replace").splitlines()
                ignoring = [*ignoring, (folder, GitIgnoreSpec.from_lines(lines))]
        for entry in entries:
            path = Path(entry.path)
            slash = "/" if entry.is_dir() else ""
            if any(rules.match_file(f"{path.relative_to(base)}{slash}") for base, rules in ignoring):
                continue
            if entry.is_dir():
                if not entry.name.startswith(".") and entry.name != "__pycache__":
                    self.add(path, ignoring, above | {real})
            elif entry.is_file():
                self._add_file(entry)

    def _add_file(self, entry: os.DirEntry[str]) -> None:
        for extension in LEFT_OUT:
            if entry.name.lower().endswith(extension):
                self.left_out[extension] += 1
                return
        with contextlib.suppress(FileNotFoundError):
            self.sizes[str(Path(entry.path).relative_to(self.root))] = entry.stat().st_size


def working_folder(root: Path, job_folder: Path | None = None) -> WorkingFolder:
    """Find the files below `root` that travel to a cluster, and those of the job file's folder if that is elsewhere."""
    beside = None
    if job_folder and not job_folder.resolve().is_relative_to(root.resolve()):
        beside = working_folder(job_folder)
    folder = WorkingFolder(root, {}, Counter(), beside)
    folder.add(root, [], frozenset())
    return folder


def _mib(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB"
