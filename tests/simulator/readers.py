"""What a reader sees after each change of the storage, and what must be true when all is over."""

import contextlib
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from overnight.tasks.state.publications import publications
from overnight.tasks.state.run import Run, read_json
from overnight.tasks.write.publish.publish import PUBLISHING, is_under_way
from overnight.tasks.write.sinks.earlier_files import KEPT, kept_folder
from overnight.tasks.write.sinks.hive_files import HiveFiles
from tests.contracts.crash_points.places import FOREIGN
from tests.contracts.sinks.publications import read_file, visible
from tests.simulator.programs import Site
from tests.simulator.world import TABLE, Operation

KINDS = ("lost", "doubled", "torn", "left over")
MOMENT = len("20260102T000000")  # at the beginning of the names of generations and attempts
UNFINISHED = (".part", ".tmp")
_contents: dict[tuple[Any, ...], list[int]] = {}  # of files, which never change


@dataclass(frozen=True)
class Fault:
    """What is wrong: one of `KINDS`, and the reason."""

    kind: str
    reason: str


@dataclass
class Reader:
    """A reader who looks at the partition after each change. It keeps the versions that it has seen, in order."""

    site: Site
    run: Run
    faults: list[Fault] = field(default_factory=list)
    versions: list[tuple[int, ...]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._has_files = isinstance(self.site.sink, HiveFiles)
        self._target, self._state = self._path(self.run.target), self._path(self.run.state)

    def saw(self, operation: Operation) -> None:
        if not self.faults and self._can_change_results(operation):
            self.look(f"after {operation.process} did {operation.name}")

    def look(self, moment: str) -> None:
        try:
            rows = tuple(self._rows())
        except FileNotFoundError as error:
            self.faults.append(Fault("torn", f"{moment}, a file that is published is not there: {error}"))
            return
        if self.versions and rows == self.versions[-1]:
            return
        if rows and rows not in self._whole():
            self.faults.append(Fault(self._kind_of(rows), f"{moment}, a reader sees {rows}"))
        elif self._were_replaced(rows) or (self.versions and not rows):
            self.faults.append(Fault("lost", f"{moment}, {rows} are back after {self.versions[-1]}"))
        self.versions.append(rows)

    def _were_replaced(self, rows: tuple[int, ...]) -> bool:
        """Return True if a reader has seen the rows of each generation that has these: of two after an undo."""
        generations = [tuple(sorted(each)) for each in self.site.rows.values()]
        return 0 < generations.count(rows) <= self.versions.count(rows)

    def _whole(self) -> set[tuple[int, ...]]:
        return {tuple(sorted(rows)) for rows in self.site.rows.values()}

    def _kind_of(self, rows: tuple[int, ...]) -> str:
        if len(rows) != len(set(rows)):
            return "doubled"
        if any(set(rows) < set(whole) for whole in self._whole()):
            return "lost"
        return "torn"

    def _rows(self) -> list[int]:
        """The rows of a listing; on an object store those of the receipt's files, because a listing has a window."""
        sink, run = self.site.sink, self.run
        if not isinstance(sink, HiveFiles):
            return visible(run, sink)
        if self.site.place.root.startswith("memory:"):
            receipt = read_json(run.ledger / "receipt.json") or {"files": []}
            names = [file.rsplit("/", 1)[-1] for file in receipt["files"]]
        else:
            names = [name for name in run.target.names() if name[0] not in "_."]
        return sorted(x for name in names if not name.endswith(".images") for x in self._content(name))

    def _content(self, name: str) -> list[int]:
        file = self.run.target / name
        filesystem, path = file.open_filesystem()
        info = filesystem.info(path)
        key = (path, info["size"], info.get("ino"), info.get("mtime"), str(info.get("created")))
        if key not in _contents:
            _contents[key] = read_file(file)["x"].to_pylist()
        return _contents[key]

    def _can_change_results(self, operation: Operation) -> bool:
        if operation.paths == (TABLE,) or not self._has_files:
            return operation.paths == (TABLE,)
        for path in operation.paths:
            if path.endswith("/receipt.json") or self._target.startswith(path):
                return True
            if path.startswith(f"{self._target}/") and not path.startswith(f"{self._state}/"):
                return True
        return False

    def _path(self, location: Any) -> str:
        return str(location.open_filesystem()[1]).rstrip("/")

    def look_at_the_end(self) -> None:
        """After the last run and a clean: readers see the receipt's rows, and nothing else is there."""
        if self.faults:
            return
        self.look("in the end")
        run, sink = self.run, self.site.sink
        receipt = read_json(run.ledger / "receipt.json")
        if receipt is None:
            self.faults.append(Fault("lost", "the last run published nothing"))
            return
        rows, wanted = tuple(visible(run, sink)), tuple(sorted(self.site.rows[receipt["generation"]]))
        if rows != wanted:
            self.faults.append(Fault(self._kind_of(rows), f"in the end, {rows} are published, the receipt's: {wanted}"))
        elif receipt["rows_out"] != len(wanted) or receipt["rows_in"] != len(wanted):
            self.faults.append(Fault("torn", f"the receipt counts {receipt['rows_in']} in, {receipt['rows_out']} out"))
        receipts = publications(run.ledger, run.job)
        self._look_for_undone_rows(receipts)
        kept = [each for each in reversed(receipts) if each["generation"] != receipt["generation"]]
        kept = kept[: getattr(sink, "keep_publications", 0)]
        self._look_at_kept_rows(kept)
        self._look_for_leftovers(receipt, kept)

    def _look_for_undone_rows(self, receipts: list[dict[str, Any]]) -> None:
        """After an undo the next run, which is not forced, publishes no rows of the undone settings."""
        for before, after in pairwise(receipts):
            undone = before.get("undo", {}).get("undone", {})
            if undone.get("fingerprint") != after["fingerprint"] or after.get("process") != "next":
                continue
            is_own = after["generation"][:MOMENT] == after["attempt"][:MOMENT]  # and not of a forced run that died
            if is_own or after["generation"] < before["generation"]:
                self.faults.append(Fault("lost", f"{after['generation']} publishes what {before['generation']} undid"))

    def _look_at_kept_rows(self, kept: list[dict[str, Any]]) -> None:
        """The publications that the sink keeps have all their rows."""
        for receipt in kept:
            rows, wanted = [], sorted(self.site.rows[receipt["generation"]])
            with contextlib.suppress(FileNotFoundError):
                for table in self.site.sink.read(self.run.sink, receipt, ["x"]):
                    rows += table["x"].to_pylist()
            if sorted(rows) != wanted:
                self.faults.append(Fault("lost", f"of the kept {wanted}, {rows} are there: {receipt['generation']}"))

    def _look_for_leftovers(self, receipt: dict[str, Any], kept: list[dict[str, Any]]) -> None:
        run, leftovers = self.run, list[str]()
        leftovers += [PUBLISHING] * is_under_way(run)
        if (run.target / FOREIGN).read_bytes() != b"theirs":
            leftovers.append(f"{FOREIGN} is another one")
        if isinstance(self.site.sink, HiveFiles):
            names = {file.rsplit("/", 1)[-1] for file in receipt["files"]}
            leftovers += [name for name in run.target.names() if name[0] not in "_." and name not in names]
            if missing := names - set(run.target.names()):
                leftovers.append(f"without {missing}")
            own = {file.rsplit("/", 1)[-1] + KEPT for each in kept for file in each["files"]}
            leftovers += [name for name in kept_folder(run).names() if name.endswith(KEPT) and name not in own]
        for folder in (run.sink, run.sink.parent, run.target):
            leftovers += [name for name in folder.names() if "publishing" in name or name.endswith(UNFINISHED)]
        filesystem, root = run.ledger.open_filesystem()
        paths = [path.removeprefix(root) for path in filesystem.find(root)]
        leftovers += [path for path in paths if path.endswith(UNFINISHED) and "/settled/" not in path]
        homes = {path.split("/")[2] for path in paths if path.startswith("/generations/")}
        homes -= {each["generation"] for each in (receipt, *kept)}  # an undo needs the records of what the sink keeps
        leftovers += [f"generations/{name}" for name in homes]
        quarantine = f"quarantine-{receipt['generation']}.parquet"
        leftovers += [name for name in (run.ledger / "quarantine").names() if name != quarantine]
        if len((run.ledger / "lease").names()) > 1:
            leftovers.append("leases")
        if leftovers:
            self.faults.append(Fault("left over", ", ".join(leftovers)))
