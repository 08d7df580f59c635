"""Patterns of paths: `*`, `?` and `[ab]` within a name, `**` for any number of folders. This file lists nothing."""

import glob
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property

from fsspec.utils import glob_translate

from overnight.tasks.errors import JobError

HIDDEN = "_."  # the first characters of names that a listing skips
ANY_DEPTH = "**"


def split(path: str) -> tuple[str, str]:
    """Split a path before its first name with a glob character. Return the folder before it, and the pattern.

    `s3://b/raw/*/x.jpg` becomes `s3://b/raw` and `*/x.jpg`. A path without a glob character is returned with an empty
    pattern. Raise `JobError` if the name of a bucket has a glob character.
    """
    names = path.split("/")
    first = next((place for place, name in enumerate(names) if glob.has_magic(name)), len(names))
    folder = "/".join(names[:first])
    if first == len(names):
        return path, ""
    if "://" in path and first < 3:
        raise JobError(f"source.path: expected the name of a bucket without *, ? and [, found {path}.")
    if folder in ("", "file://"):
        folder = f"{folder}/" if first else "."
    return folder, "/".join(names[first:])


@dataclass(frozen=True)
class Pattern:
    """The part of a path from its first name with a glob character on. Paths are relative to the folder before it.

    A pattern that matches a folder also matches all files below it.
    """

    text: str

    def __post_init__(self) -> None:
        _ = self._whole  # raises JobError

    @cached_property
    def _whole(self) -> re.Pattern[str]:
        try:
            regex = glob_translate(self.text.rstrip("/"))
        except ValueError:
            raise JobError(
                f"source.path: expected ** alone between two slashes, found {self.text}. Use * within a name."
            ) from None
        return re.compile(regex.removesuffix(r"\Z") + (r"/.+\Z" if self.text.endswith("/") else r"(/.+)?\Z"))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the pattern of each name in the path, up to the first `**`: `("a*", "b")` for `a*/b/**/c`."""
        names = self.text.rstrip("/").split("/")
        return tuple(names[: names.index(ANY_DEPTH)] if ANY_DEPTH in names else names)

    @cached_property
    def beginning(self) -> str:
        """Return the characters with which every matching path begins: `2026/img_` for `2026/img_*.jpg`."""
        found = re.match(r"[^*?[]*", self.text)
        return found.group() if found else ""

    def matches(self, path: str) -> bool:
        """Return True for a path that matches, and for a path below a folder that matches."""
        return self._whole.match(path) is not None

    def may_hold(self, folder: str) -> bool:
        """Return True if a path below this folder may match, and False if none can."""
        return all(fnmatchcase(name, own) for name, own in zip(folder.split("/"), self.names, strict=False))

    def is_hidden(self, path: str) -> bool:
        """Return True if `path` must be skipped, because one of its names begins with `_` or `.`.

        Such a name counts only if no name in the pattern begins with `_` or `.` and matches it.
        """
        own = [name for name in self.text.split("/") if name and name[0] in HIDDEN]
        hidden = (name for name in path.split("/") if name and name[0] in HIDDEN)
        return any(not any(fnmatchcase(name, written) for written in own) for name in hidden)
