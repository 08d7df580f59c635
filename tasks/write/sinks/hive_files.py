"""Plain files in Hive layout, of any format: `<path>/date=D/part-*`. Files of `all` are directly in `<path>`.

On local disks the partition's directory is exchanged in one step, which needs `renameat2`, and for `all` also a new
directory beside `<path>`, on the same mount. Without these, files of `all` are renamed one by one. On object stores the
new files get new names, the receipt switches to them, and the old ones are removed `grace_seconds` later. Readers that
list meanwhile see both; readers that use the receipt's `files` see one version. `keep_publications` keeps old files.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from pydantic import Field, NonNegativeInt

from overnight.tasks.state import lease
from overnight.tasks.state.run import Run, published_files
from overnight.tasks.state.staged_parts import PART
from overnight.tasks.storage.filesystems import is_local
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import Prepared
from overnight.tasks.write.sink import DirectorySink, as_names, as_paths, file_prefix
from overnight.tasks.write.sinks import directory_swap, earlier_files

TABLES = frozenset({"_delta_log", "_versions"})  # in the directory of a Delta, or a Lance table


class HiveFiles(DirectorySink):
    """The common part of sinks that publish files on any filesystem.

    A leaf adds `prepare`, which writes the files into the directory `make_place(run)`. Until the commit, their names
    have the suffix `.part`. A published file may also be a folder.
    """

    grace_seconds: Annotated[
        float, Field(ge=0, description="On object stores: how long replaced files stay for their readers.")
    ] = 10

    keep_publications: Annotated[
        NonNegativeInt, Field(description="How many replaced publications to keep for `overnight undo` and `diff`.")
    ] = 0  # a publish has always removed replaced rows; to keep some is the decision of their owner

    operational: ClassVar[tuple[str, ...]] = ("grace_seconds", "keep_publications")
    keeps_rows: ClassVar[bool] = True
    keeps_publications: ClassVar[bool] = True

    def place_of(self, sink: Location, file: str) -> Location:
        return earlier_files.published_or_kept(sink, file)

    def lost(self, run: Run, files: list[str], rows: int) -> str:
        missing = sorted(as_names(files).difference(run.target.names()))
        return f"the published file {run.target / missing[0]}" if missing else ""

    def foreign(self, run: Run, known: set[str]) -> list[str]:
        """Return unknown files, and the mark of a table whose earlier versions need files that this sink removes."""
        names = [name for name in run.target.names() if not directory_swap.is_hidden(name)]
        table = sorted(TABLES.intersection(run.sink.names()))
        return table + [path for path in as_paths(run, names) if path not in known]

    def commit(self, run: Run, prepared: Prepared, old: list[str]) -> None:
        names = sorted(as_names(self.published(run, prepared)))
        kept_names = sorted(as_names(prepared.kept.files if prepared.kept else ()))
        filesystem, target = run.target.open_filesystem()
        if not is_local(filesystem):
            source = _inside(run).open_filesystem()[1]
            if paths := filesystem.find(source) if names else []:
                # `PART` is in the file's name, or in its folder's
                copies = [target + path.removeprefix(source).replace(PART, "", 1) for path in paths]
                filesystem.copy(paths, copies)
            return
        source, target = _place(run), os.path.realpath(target)
        for name in names:
            os.rename(f"{source}/{name}{PART}", f"{source}/{name}")
        if run.partition_directory or (source == _sibling(run) and directory_swap.can_swap(source)):
            for name in kept_names:
                _link(f"{target}/{name}", f"{source}/{name}")
            directory_swap.exchange(source, target)
            directory_swap.restore(source, target, _is_ours(run, [*old, *kept_names]))
            return
        for name in names:
            os.rename(f"{source}/{name}", f"{target}/{name}")

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        if is_local(run.target.open_filesystem()[0]):
            for directory in _places(run):
                directory_swap.withdraw(directory, _target(run), _is_ours(run, [*old, *files]))
        names = set(run.target.names())
        if names.issuperset(as_names(files)) and (files or names.isdisjoint(as_names(old))):
            return True
        _remove_places(run, sorted(names & as_names(files)))  # `discard` does not know the links to kept files
        return False

    def keep(self, run: Run, files: list[str], earlier: Iterable[Mapping[str, Any]]) -> None:
        receipts = list(islice(earlier, self._count(run)))
        excess = self.excess(run, receipts)
        if receipts or excess:
            lease.check(run.ledger, run.token)  # so neither has files of a later run
        for file in sorted(_files_of(receipts).difference(files)):
            for source in _places_of_old(run, file.rsplit("/", 1)[-1]):
                if source.exists():
                    earlier_files.move(source, run.sink / earlier_files.FOLDER / f"{file}{earlier_files.KEPT}")
        for kept_file in excess:
            kept_file.remove()

    def excess(self, run: Run, earlier: Iterable[Mapping[str, Any]]) -> list[Location]:
        folder = earlier_files.kept_folder(run)
        files = _files_of(islice(earlier, self._count(run)))
        names = {name + earlier_files.KEPT for name in as_names(files)}
        return [folder / name for name in folder.names() if name.endswith(earlier_files.KEPT) and name not in names]

    def recall(self, run: Run, receipt: Mapping[str, Any]) -> Prepared:
        files = earlier_files.publish_again(run, receipt, self.place_of, make_place(run), PART)
        return Prepared(files, pa.schema([]))

    def _count(self, run: Run) -> int:
        return 0 if run.limit_rows else self.keep_publications

    def finish(self, run: Run, files: list[str], old: list[str]) -> None:
        old_names = as_names(old).intersection(run.target.names())
        if old_names and not is_local(run.target.open_filesystem()[0]):
            time.sleep(self.grace_seconds)
        for name in sorted(old_names):
            (run.target / name).remove()
        _remove_places(run, [*old, *files])

    def discard(self, run: Run) -> None:
        for name in run.target.names():
            if name.startswith(file_prefix(run)):
                (run.target / name).remove()
        _remove_places(run, [])


def _inside(run: Run) -> Location:
    """Return the hidden directory in the sink in which the run prepares its files."""
    return run.sink / f"_publishing-{run.partition}-{run.attempt}"


def _sibling(run: Run) -> str:
    """Return the place of the files of `all` beside a local sink: no directory is exchanged with one inside it."""
    sink = os.path.realpath(run.sink.open_filesystem()[1])
    return f"{os.path.dirname(sink)}/.{os.path.basename(sink)}-publishing-{run.attempt}"


def _places(run: Run) -> list[str]:
    """Return the places in which `run` may have prepared files, on a local disk."""
    inside = os.path.realpath(run.sink.open_filesystem()[1]) + "/" + _inside(run).name
    return [inside] if run.partition_directory else [_sibling(run), inside]


def _places_of_old(run: Run, name: str) -> Iterator[Location]:
    """Yield the places in which a replaced file may be after a commit."""
    if is_local(run.sink.open_filesystem()[0]):
        for directory in _places(run):
            yield Location(f"{directory}/{name}")
            yield Location(f"{directory}{directory_swap.CUT_OFF}/{name}")
    yield run.target / name


def _files_of(receipts: Iterable[Mapping[str, Any]]) -> set[str]:
    files = set[str]()
    for receipt in receipts:
        files.update(published_files(dict(receipt)))
    return files


def _place(run: Run) -> str:
    return next((directory for directory in _places(run) if os.path.isdir(directory)), _places(run)[-1])


def make_place(run: Run) -> Location:
    """Return a hidden directory of the run, on the filesystem of the sink, for the files that it prepares."""
    if not is_local(run.sink.open_filesystem()[0]):
        return _inside(run)
    directory = _places(run)[-1]
    if not run.partition_directory:
        os.makedirs(_target(run), exist_ok=True)
        if directory_swap.can_move(_sibling(run), _target(run)):
            directory = _sibling(run)
    os.makedirs(directory, exist_ok=True)
    return Location(directory)


def _link(file: str, place: str) -> None:
    """Give a published file, or each file of a folder, a second name; copy it if the filesystem has no hard links."""
    if os.path.isdir(file):
        shutil.copytree(file, place, copy_function=_link)
        return
    with contextlib.suppress(OSError):
        os.link(file, place)
        return
    shutil.copy2(file, place)


def _target(run: Run) -> str:
    return os.path.realpath(run.target.open_filesystem()[1])


def _remove_places(run: Run, old: list[str]) -> None:
    if not is_local(run.sink.open_filesystem()[0]):
        _inside(run).remove()
        return
    for directory in _places(run):
        directory_swap.remove(directory, _is_ours(run, old))
    if not run.partition_directory:
        with contextlib.suppress(OSError):
            os.rmdir(directory_swap.moved(_sibling(run), _target(run)))


def _is_ours(run: Run, old: list[str]) -> Callable[[str], bool]:
    """Return a function that is True for the name of a file that this publish replaces, or made."""
    names, prefix = as_names(old), file_prefix(run)
    return lambda name: name in names or name.startswith(prefix)
