"""Files and directories on any filesystem, by URI: local, `file://`, `s3://`, `gs://`, `abfs://`; read-only `hf://`.

A `Location` keeps the text of the job file. `{partition}` and `${ENV_VAR}` are expanded only on use, so neither a
secret nor a machine's path is stored with it. After retries, an outage raises `ServiceUnavailable`; missing permission
or space raises `AccessDenied` without retries.
"""

import contextlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from glob import has_magic
from typing import Any, BinaryIO

import fsspec

from overnight.tasks.config.masking import hide_variable_of_job, masked
from overnight.tasks.config.partition_names import filled
from overnight.tasks.errors import JobError
from overnight.tasks.storage.error_translation import translate_storage_errors
from overnight.tasks.storage.filesystems import (
    at_commit,
    entries,
    is_hub,
    is_local,
    is_s3,
    open_filesystem,
    require_bucket,
)
from overnight.tasks.storage.globs import Pattern
from overnight.tasks.storage.local_file import put_on_disk, temporary_file
from overnight.tasks.storage.skipped_files import pass_over, reason_to_skip
from overnight.tasks.storage.transient_errors import is_full, status_of

VARIABLE = re.compile(r"\$\{([^}]*)\}")


@dataclass(frozen=True)
class File:
    """A file of a listing. `path` is relative to the listed directory, and `size` is in bytes.

    `version` is its ETag, hash or time of change; empty if unknown. `changed_at` is in seconds since 1970, or None.
    """

    path: str
    uri: str
    size: int
    version: str
    changed_at: float | None = field(default=None, compare=False)
    reason_to_skip: str = field(default="", compare=False)  # empty for an input


def expand(template: str, partition: str = "all", escape: Callable[[str], str] = str) -> str:
    """Return `template` with the values of `{partition}`, `{date}` and the like, and of `${ENV_VAR}`.

    `escape` is applied to the values of variables.
    """

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in os.environ:
            raise JobError(f"{template}: the environment variable {name} is not set where the job runs. Set it.")
        hide_variable_of_job(name)
        return escape(os.environ[name])

    return VARIABLE.sub(value, filled(template, partition))


@dataclass(frozen=True)
class Location:
    """A directory or file. `template` is its path or URI as the job file writes it, and is expanded on use."""

    template: str
    partition: str = "all"
    anonymous: bool = False

    def __truediv__(self, name: str) -> "Location":
        return replace(self, template=f"{self.template.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return masked(filled(self.template, self.partition))

    @property
    def uri(self) -> str:
        """Return the expanded URI, or a plain path for local files."""
        return expand(self.template, self.partition)

    @property
    def parent(self) -> "Location":
        return replace(self, template=self.template.rstrip("/").rsplit("/", 1)[0])

    @property
    def name(self) -> str:
        return self.template.rstrip("/").rsplit("/", 1)[-1]

    def open_filesystem(self) -> tuple[fsspec.AbstractFileSystem, str]:
        """Return the filesystem, and this location's path in it. Raise `JobError` if its driver is unknown."""
        try:
            return open_filesystem(self.uri, self.anonymous)
        except ValueError as error:
            raise JobError(f"{self}: this filesystem is unknown here: {error}") from error

    @contextlib.contextmanager
    def _translating(self, verb: str) -> Iterator[tuple[fsspec.AbstractFileSystem, str]]:
        """Yield the filesystem and the path in it, and translate errors of the body."""
        filesystem, path = self.open_filesystem()
        with translate_storage_errors(verb, self, path if is_local(filesystem) else ""):
            yield filesystem, path

    def listed(
        self, extensions: tuple[str, ...] = (), pattern: Pattern | None = None, folder: str = ""
    ) -> Iterator[File]:
        """Yield the files below, sorted by path, or the location itself if it is a file, also those to skip.

        Raise `FileNotFoundError` for a missing bucket, `PermissionError` for one that may not be read.
        """
        filesystem, root = self.open_filesystem()
        if is_hub(filesystem):
            root = at_commit(filesystem, root)
        root, is_empty = root.rstrip("/"), True
        scheme = ""
        if not is_local(filesystem):
            scheme = filesystem.unstrip_protocol(root).removesuffix(root)
        for entry in entries(filesystem, root, pattern):
            is_empty = False
            below, name = entry.name[len(root) :].lstrip("/"), entry.name.rsplit("/", 1)[-1]
            if entry.name.endswith("/"):
                continue  # such a name represents a directory on object stores
            if pattern and not (pattern.matches(below) or (entry.special_kind and pattern.may_hold(below))):
                continue
            path = below or name
            reason = reason_to_skip(path, entry, extensions, pattern)
            if folder:
                path = f"{folder}/{below}".rstrip("/")
            yield File(path, scheme + entry.name, entry.size, entry.version, entry.changed_at, reason)
        if is_empty:
            require_bucket(filesystem, root)

    def files(self, extensions: tuple[str, ...] = ()) -> Iterator[File]:
        """Yield the inputs of `listed`. `skipped_files.counting` counts the others."""
        filesystem, root = self.open_filesystem()
        if is_local(filesystem) and not filesystem.exists(root):
            raise FileNotFoundError(f"there is no directory {self}")
        for file in self.listed(extensions):
            if file.reason_to_skip:
                pass_over(file.reason_to_skip, file.path)
            else:
                yield file

    def names(self) -> list[str]:
        """Return the sorted names of the entries directly below; an empty list if there is no such directory."""
        filesystem, path = self.open_filesystem()
        with contextlib.suppress(FileNotFoundError), translate_storage_errors("list", self):
            return sorted(entry.rstrip("/").rsplit("/", 1)[-1] for entry in filesystem.ls(path, detail=False))
        return []

    def folder_names(self) -> list[str]:
        """Return the sorted names of the folders directly below. The folder must exist."""
        with self._translating("list") as (filesystem, path):
            entries = filesystem.ls(path, detail=True)
        names = []
        for entry in entries:
            if entry["type"] == "directory":
                names.append(entry["name"].rstrip("/").rsplit("/", 1)[-1])
        return sorted(names)

    def exists(self) -> bool:
        with self._translating("look at") as (filesystem, path):
            return bool(filesystem.exists(path))

    def is_link(self) -> bool:
        """Return True for a local link, also if it leads nowhere."""
        filesystem, path = self.open_filesystem()
        return is_local(filesystem) and os.path.islink(path.rstrip("/"))

    def read_bytes(self) -> bytes:
        """Return the whole content of the file. Raise `FileNotFoundError` if it does not exist."""
        with self._translating("read") as (filesystem, path):
            return bytes(filesystem.cat_file(path))

    def read_each(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of files in this directory, by name. Names that do not exist are left out."""
        if not names:
            return {}
        filesystem, root = self.open_filesystem()
        paths = [f"{root.rstrip('/')}/{name}" for name in names]
        if is_s3(filesystem):
            results = filesystem.cat_versions(paths)
        else:  # not `cat`: it treats a path with [ or * in it as a pattern
            results = filesystem.cat_ranges(paths, None, None, on_error="return")
        contents = {}
        for name, result in zip(names, results, strict=True):
            if isinstance(result, FileNotFoundError):
                continue
            with translate_storage_errors("read", self / name):
                if isinstance(result, Exception):
                    raise result
            contents[name] = bytes(result)
        return contents

    def read_tail(self, count: int) -> bytes:
        """Return the last `count` bytes of the file, or all if there are fewer. S3 needs one request for this."""
        with self._translating("read") as (filesystem, path):
            if is_local(filesystem) or is_s3(filesystem):
                return bytes(filesystem.cat_file(path, start=-count))
            # Azure's driver (adlfs 2026.8) cannot read bytes from the end.
            return bytes(filesystem.cat_file(path, start=max(filesystem.size(path) - count, 0)))

    def read_range(self, start: int, length: int) -> bytes:
        """Return `length` bytes of the file from the byte `start` on, or fewer if the file ends before."""
        with self._translating("read") as (filesystem, path):
            return bytes(filesystem.cat_file(path, start=start, end=start + length))

    def open(self) -> Any:
        """Return the file, open for reading: binary and seekable."""
        with self._translating("read") as (filesystem, path):
            return filesystem.open(path, "rb")

    def write_bytes(self, data: bytes) -> None:
        """Write the file whole or not at all: by a rename on local disks, by one put on object stores."""
        with self._translating("write") as (filesystem, path):
            if is_local(filesystem):
                with self.writing() as file:
                    file.write(data)
                return
            try:
                filesystem.pipe_file(path, data)
            # if the last response of a large upload was lost, the upload is complete and no longer known
            except FileNotFoundError:
                filesystem.pipe_file(path, data)

    @contextlib.contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """Yield a binary file to fill. If the body succeeds, it becomes the file here; otherwise nothing changes."""
        filesystem, path = self.open_filesystem()
        with contextlib.ExitStack() as stack:
            local_path = path
            if not is_local(filesystem):
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="overnight-"))
                local_path = os.path.join(folder, "file")
            temporary = stack.enter_context(temporary_file(local_path))
            try:
                yield temporary
            except Exception as error:
                if not is_full(error):
                    raise
                with translate_storage_errors("write", self, local_path):
                    raise
            with translate_storage_errors("write", self, local_path):
                put_on_disk(temporary)
                if is_local(filesystem):
                    os.replace(temporary.name, path)
                else:
                    filesystem.put_file(temporary.name, path)

    def copy_to(self, target: "Location") -> None:
        """Make the file `target` from this file, whole or not at all, by a link or the store's own copy if possible."""
        filesystem, path = self.open_filesystem()
        with target._translating("write") as (target_filesystem, target_path):
            if is_local(filesystem) and is_local(target_filesystem):
                if _replace_by_link(path, target_path):
                    return
            elif filesystem == target_filesystem:
                filesystem.cp_file(path, target_path)
                return
        with self.open() as file, target.writing() as copy:
            shutil.copyfileobj(file, copy)

    def move_to(self, target: "Location") -> None:
        """Rename the file in one step; on an object store, copy it in one step, and then remove it.

        On a disk, the folder of `target` must exist.
        """
        filesystem, path = self.open_filesystem()
        with target._translating("write") as (_, target_path):
            if is_local(filesystem):
                os.replace(path, target_path)
                return
            filesystem.cp_file(path, target_path)
            filesystem.rm_file(path)

    def create(self, data: bytes) -> None:
        """Write the whole file, or raise `FileExistsError` if one exists. Of concurrent callers, one succeeds.

        `data` must be unique: if a response was lost, it shows that the existing file is of this caller's first try.
        """
        with self._translating("write") as (filesystem, path):
            if is_local(filesystem):
                with temporary_file(path) as temporary:
                    temporary.write(data)
                    put_on_disk(temporary)
                    os.link(temporary.name, path)
                return
            try:
                filesystem.pipe_file(path, data, mode="create")
            except OSError as error:
                # s3fs recognises this error by the name of the condition. AWS returns the name, and other servers do
                # not (for example ministack).
                if not isinstance(error, FileExistsError) and status_of(error) != 412:
                    raise
                with contextlib.suppress(FileNotFoundError):
                    if self.read_bytes() == data:
                        return
                raise FileExistsError(f"{self} is there") from error

    def make_private(self) -> None:
        """Make this directory, if it is local and missing, for its user alone, or for the group of a shared parent."""
        filesystem, path = self.open_filesystem()
        if not is_local(filesystem) or os.path.lexists(path.rstrip("/")):
            return
        parent = os.path.dirname(path.rstrip("/"))
        with translate_storage_errors("write", self, parent):
            os.makedirs(parent, exist_ok=True)
            mode = 0o770 if os.stat(parent).st_mode & stat.S_ISGID else 0o700
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, mode)

    def remove(self) -> None:
        """Remove a file or link, or a directory with everything below it. Do nothing if it does not exist."""
        with self._translating("remove") as (filesystem, path):
            if self.is_link():
                os.unlink(path.rstrip("/"))
            elif not is_local(filesystem) and has_magic(path):  # `rm` treats it as a pattern
                for file in filesystem.find(path):
                    filesystem.rm_file(file)
            elif filesystem.exists(path):
                filesystem.rm(path, recursive=True)


def _replace_by_link(path: str, target: str) -> bool:
    """Make `target` a link to `path`. Return False if it must be a new file: a link may lead to `path` even then."""
    with temporary_file(target) as file:
        own, new = os.stat(path), os.fstat(file.fileno())
        if (own.st_uid, own.st_gid, own.st_mode) != (new.st_uid, new.st_gid, new.st_mode):
            return False
        os.unlink(file.name)
        with contextlib.suppress(OSError):  # another filesystem, or one without links
            os.link(path, file.name)
            os.replace(file.name, target)
            return True
    return False
