"""Patterns of paths: `*`, `?` and `[ab]` within a name, `**` for any number of folders. This file lists nothing."""

import glob
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import takewhile

from fsspec.utils import glob_translate

from overnight.tasks.errors import JobError

HIDDEN = "_."  # the first characters of names that a listing skips
ANY_DEPTH = "**"


def split(path: str) -> tuple[str, str]:
    """Split a path before its first name with a glob character: `s3://b/*/x.jpg` becomes `s3://b` and `*/x.jpg`."""
    names = path.split("/")
    count = sum(1 for _ in takewhile(lambda name: not glob.has_magic(name), names))
    if count == len(names):
        return path, ""
    if "://" in path and count < 3:
        raise JobError(f"source.path: expected the name of a bucket without *, ? and [, found {path}.")
    folder = "/".join(names[:count])
    if folder in ("", "file://"):
        folder = f"{folder}/" if count else "."
    return folder, "/".join(names[count:])


@dataclass(frozen=True)
class Pattern:
    """The part of a path from its first name with a glob character on. It matches all files below a folder, too."""

    text: str

    def __post_init__(self) -> None:
        _ = self._regex  # raises JobError

    @cached_property
    def _regex(self) -> re.Pattern[str]:
        try:
            regex = glob_translate(self.text.rstrip("/"))
        except ValueError:
            raise JobError(
                f"source.path: expected ** alone between two slashes, found {self.text}. Use * within a name."
            ) from None
        below = r"/.+\Z" if self.text.endswith("/") else r"(/.+)?\Z"
        return re.compile(regex.removesuffix(r"\Z") + below)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Return the pattern of each name in the path, up to the first `**`: `("a*", "b")` for `a*/b/**/c`."""
        return tuple(takewhile(lambda name: name != ANY_DEPTH, self.text.rstrip("/").split("/")))

    @cached_property
    def beginning(self) -> str:
        """Return the characters with which every matching path begins: `2026/img_` for `2026/img_*.jpg`."""
        return re.split(r"[*?[]", self.text, maxsplit=1)[0]

    def matches(self, path: str) -> bool:
        """Return True for a path that matches, and for a path below a folder that matches."""
        return self._regex.match(path) is not None

    def may_hold(self, folder: str) -> bool:
        """Return True if a path below this folder may match, and False if none can."""
        return all(map(fnmatchcase, folder.split("/"), self.names))

    def is_hidden(self, path: str) -> bool:
        """Return True if a name in `path` begins with `_` or `.`, unless such a name in the pattern matches it."""
        patterns = _hidden_names(self.text)
        return any(not any(fnmatchcase(name, own) for own in patterns) for name in _hidden_names(path))


def _hidden_names(path: str) -> list[str]:
    return [name for name in path.split("/") if name and name[0] in HIDDEN]
