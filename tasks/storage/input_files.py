"""The files of a source's paths: folders, files and patterns, in any mixture and on any storage.

A path with `*`, `?` or `[` is a pattern, unless something exists under exactly that name. Only characters that the job
file itself contains have this meaning; in the value of a variable they are ordinary characters.

`File.path` is relative. With one path, it is relative to the folder, or to the folder before the first glob character.
With several paths, it is relative to the folder that all paths share. This folder is found in the texts of the job
file, so the value of a `${VARIABLE}` in front of it changes no path. Files that several paths find are listed once.
"""

import glob
import heapq
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, takewhile

from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.file_info import NoInputs
from overnight.tasks.storage.filesystems import WEB, is_local, protocol_of
from overnight.tasks.storage.globs import Pattern, split
from overnight.tasks.storage.list_below import list_below
from overnight.tasks.storage.location import File, Location, expand
from overnight.tasks.storage.skipped_files import PassedOver, pass_over, shown, told

NAMES_SHOWN = 5


@dataclass(frozen=True)
class InputPath:
    """One path of a source. `place` is the folder or file, or the folder before `pattern`. `text` is for messages."""

    text: str
    place: Location
    pattern: Pattern | None = None

    def listed(self, extensions: tuple[str, ...], folder: str, may_be_empty: bool) -> Iterator[tuple[File, str]]:
        """Yield each file, and the reason to skip it, which is empty for an input. `File.path` begins with `folder`.

        The name of an input ends in one of `extensions`, or in anything if there are none. Raise `NoInputs` if a local
        path does not exist. Raise it at the end if there was no input, unless `may_be_empty`.
        """
        filesystem, root = self.place.open_filesystem()
        found, passed = 0, PassedOver()
        if not self.pattern and is_local(filesystem) and not filesystem.exists(root):
            raise NoInputs(f"expected files at {self.text}, found nothing.{nearest(self.place)}")
        for one in list_below(filesystem, root, extensions, self.pattern):
            file = File.of(one, folder)
            if one.reason:
                passed.add(one.reason, file.path)
            found += not one.reason
            yield file, one.reason
        if not found and not may_be_empty:
            ending = f" ending in {', '.join(extensions)}" if extensions else ""
            where = f"that match {self.text}" if self.pattern else f"below {self.text}"
            skipped = f" (passed over: {told(passed.found)})" if passed.found else ""
            raise NoInputs(
                f"expected files{ending} {where}, found none{skipped}.{nearest(self.place, self.pattern)} "
                "Set source.allow_empty: true if an empty partition is expected."
            )


def input_path(path: str, partition: str, anonymous: bool = False) -> InputPath:
    """Return the `InputPath` of a path in the job file.

    It has a pattern if the path has glob characters, and no file or folder has exactly that name.
    """
    place = Location(path, partition, anonymous)
    if protocol_of(path) in WEB:  # such a server has no listing, and a ? begins the query of a URL
        return InputPath(str(place), place)
    folder, pattern = split(path)
    if not pattern or place.exists():
        return InputPath(str(place), place)
    return InputPath(
        str(place), Location(folder, partition, anonymous), Pattern(expand(pattern, partition, glob.escape))
    )


def input_files(
    paths: Sequence[str], partition: str, anonymous: bool, extensions: tuple[str, ...], may_be_empty: bool
) -> Iterator[File]:
    """Yield the files of all paths, sorted by URI, each file once.

    `skipped_files.counting` counts skipped files. The names of the files end in one of `extensions`, or in anything if
    there are none.

    Raise `NoInputs` if a pattern, or one of several paths, finds no file, unless `may_be_empty`. Raise it also if one
    of several paths is local and does not exist. Raise `FileNotFoundError` for a single directory or a bucket that does
    not exist, and `PermissionError` for one that may not be read.
    """
    found = [input_path(path, partition, anonymous) for path in paths]
    if len(found) == 1 and not found[0].pattern:
        yield from found[0].place.files(extensions)
        return
    names = [path.place.template.rstrip("/").split("/") for path in found]
    shared = sum(1 for _ in takewhile(lambda same: len(set(same)) == 1, zip(*names, strict=False)))
    folders = ["/".join(own[shared:]).replace("{partition}", partition) for own in names]
    listings = [path.listed(extensions, folder, may_be_empty) for path, folder in zip(found, folders, strict=True)]
    for _, same in groupby(heapq.merge(*listings, key=_order), key=_order):
        file, reason = min(same, key=_is_skipped)
        if reason:
            pass_over(reason, file.path)
        else:
            yield file


def input_folders(paths: Sequence[str], partition: str, anonymous: bool = False) -> list[Location]:
    """Return the folder of each path, without repetitions.

    For a folder it is the path itself, for a file the folder that contains it, and for a pattern the folder before it.
    """
    found: dict[Location, None] = {}
    for path in paths:
        place = input_path(path, partition, anonymous).place
        filesystem, name = place.open_filesystem()
        found.setdefault(place.parent if filesystem.isfile(name) else place)
    return list(found)


def nearest(place: Location, pattern: Pattern | None = None) -> str:
    """Return a sentence that names what exists near `place`, for the message about a path that finds nothing.

    It lists some names in the deepest folder that exists on the way to `place`. With `pattern`, it goes on below
    `place` to the deepest folder that the pattern matches. It is empty if that folder is unknown or empty.
    """
    try:
        while not (names := place.names()) and _has_parent(place):
            place, pattern = place.parent, None
        for own in pattern.names[:-1] if pattern else ():
            below = next((name for name in names if Pattern(own).matches(name) and (place / name).names()), "")
            if not below:
                break
            place, names = place / below, (place / below).names()
    except OvernightError:  # the folder above may be forbidden
        return ""
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return f" {place} has {', '.join(map(shown, names[:NAMES_SHOWN]))}{more}." if names else ""


def _has_parent(place: Location) -> bool:
    text = place.template.rstrip("/")
    return text.count("/") > (2 if "://" in text else 1)


def _order(listed: tuple[File, str]) -> bytes:
    return os.fsencode(listed[0].uri)


def _is_skipped(listed: tuple[File, str]) -> bool:
    return bool(listed[1])
