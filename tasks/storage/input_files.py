"""The files of a source's paths: folders, files and patterns, in any mixture and on any storage.

A path with `*`, `?` or `[` is a pattern, unless something exists under exactly that name; in the value of a variable
these characters are ordinary. `File.path` is relative to the folder, or to the folder before the first glob character.
With several paths, it is relative to the folder that the texts of all paths share.
"""

import glob
import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from overnight.tasks.config.partition_names import filled
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.file_info import NoInputs
from overnight.tasks.storage.filesystems import WEB, is_local, protocol_of
from overnight.tasks.storage.globs import Pattern, split
from overnight.tasks.storage.location import File, Location, expand
from overnight.tasks.storage.skipped_files import PassedOver, pass_over, shown, told

NAMES_SHOWN = 5


@dataclass(frozen=True)
class InputPath:
    """One path of a source. `location` is a folder or file, or the folder before `pattern`. `text` is for messages."""

    text: str
    location: Location
    pattern: Pattern | None = None

    def listed(self, extensions: tuple[str, ...], folder: str, may_be_empty: bool) -> Iterator[File]:
        """Yield each file, also those to skip. Raise `NoInputs` if there is no input, unless `may_be_empty`."""
        filesystem, root = self.location.open_filesystem()
        if not self.pattern and is_local(filesystem) and not filesystem.exists(root):
            raise NoInputs(f"expected files at {self.text}, found nothing.{_nearest(self.location)}")
        count, passed_over = 0, PassedOver()
        for file in self.location.listed(extensions, self.pattern, folder):
            if file.reason_to_skip:
                passed_over.add(file.reason_to_skip, file.path)
            else:
                count += 1
            yield file
        if count or may_be_empty:
            return
        ending = f" ending in {', '.join(extensions)}" if extensions else ""
        verb = "that match" if self.pattern else "below"
        summary = f" (passed over: {told(passed_over.found)})" if passed_over.found else ""
        raise NoInputs(
            f"expected files{ending} {verb} {self.text}, found none{summary}.{_nearest(self.location, self.pattern)} "
            "Set source.allow_empty: true if an empty partition is expected."
        )


def _input_path(path: str, partition: str, anonymous: bool) -> InputPath:
    location = Location(path, partition, anonymous)
    if protocol_of(path) in WEB:  # such a server has no listing, and a ? begins the query of a URL
        return InputPath(str(location), location)
    folder, pattern = split(path)
    if not pattern or location.exists():
        return InputPath(str(location), location)
    own = Pattern(expand(pattern, partition, glob.escape))
    return InputPath(str(location), Location(folder, partition, anonymous), own)


def input_files(
    paths: Sequence[str], partition: str, anonymous: bool, extensions: tuple[str, ...], may_be_empty: bool
) -> Iterator[File]:
    """Yield the files of all paths, sorted by URI, each file once.

    Raise `NoInputs` if a pattern, or one of several paths, finds no file, unless `may_be_empty`.
    """
    inputs = [_input_path(path, partition, anonymous) for path in paths]
    if len(inputs) == 1 and not inputs[0].pattern:
        yield from inputs[0].location.files(extensions)
        return
    names = [path.location.template.rstrip("/").split("/") for path in inputs]
    depth = sum(1 for _ in takewhile(lambda same: len(set(same)) == 1, zip(*names, strict=False)))
    listings = []
    for path, own in zip(inputs, names, strict=True):
        folder = filled("/".join(own[depth:]), partition)
        listings.append(path.listed(extensions, folder, may_be_empty))
    for _, same in groupby(heapq.merge(*listings, key=_uri), key=_uri):
        file = min(same, key=lambda file: bool(file.reason_to_skip))
        if file.reason_to_skip:
            pass_over(file.reason_to_skip, file.path)
        else:
            yield file


def input_folders(paths: Sequence[str], partition: str, anonymous: bool = False) -> list[Location]:
    """Return the folder of each path, each once: of a file the folder around it, of a pattern the folder before it."""
    folders: dict[Location, None] = {}
    for path in paths:
        location = _input_path(path, partition, anonymous).location
        filesystem, name = location.open_filesystem()
        if filesystem.isfile(name):
            location = location.parent
        folders[location] = None
    return list(folders)


def _nearest(folder: Location, pattern: Pattern | None = None) -> str:
    """Return a sentence with some names in the deepest folder that exists on the way to the path, for a message."""
    try:
        while not (names := folder.names()) and _has_parent(folder):
            folder, pattern = folder.parent, None
        for glob_name in pattern.names[:-1] if pattern else ():
            below = next((name for name in names if Pattern(glob_name).matches(name) and (folder / name).names()), "")
            if not below:
                break
            folder, names = folder / below, (folder / below).names()
    except OvernightError:  # the folder above may be forbidden
        return ""
    if not names:
        return ""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f" {folder} has {', '.join(map(shown, names[:NAMES_SHOWN]))}{more}."


def _has_parent(location: Location) -> bool:
    text = location.template.rstrip("/")
    return text.count("/") > (2 if "://" in text else 1)


def _uri(file: File) -> bytes:
    return os.fsencode(file.uri)
