"""A stand-in for Hugging Face's hub on this machine: a folder as a data set with commits, as huggingface_hub asks."""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

DATASET = "me/things"
Commit = dict[str, bytes]  # files by path


@contextlib.contextmanager
def serving(handler: Callable[..., BaseHTTPRequestHandler]) -> Iterator[str]:
    """The address of a server on this machine, for as long as the body runs."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@contextlib.contextmanager
def hub(folder: Path) -> Iterator[str]:
    """The address of a server on which `main` of the data set `DATASET` is what the folder holds at that moment."""
    with serving(partial(_Answer, folder, {})) as address:
        yield address


class Answer(BaseHTTPRequestHandler):
    """Answers GET, and HEAD without a body; silent on the terminal."""

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        raise NotImplementedError

    def send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def send_json(self, found: Any) -> None:
        self.send(200, json.dumps(found).encode(), {"Content-Type": "application/json"})

    def log_message(self, *arguments: Any) -> None:
        """Nothing on the terminal."""


class _Answer(Answer):
    def __init__(self, folder: Path, commits: dict[str, Commit], *arguments: Any) -> None:
        self._folder, self._commits = folder, commits
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if asked := re.fullmatch(rf"/datasets/{DATASET}/resolve/(\w+)/(.*)", path):
            self._send_file(self._commit(asked[1])[1].get(asked[2]))
        elif asked := re.fullmatch(rf"/api/datasets/{DATASET}(?:/revision/(\w+))?", path):
            self.send_json({"id": DATASET, "sha": self._commit(asked[1] or "main")[0], "siblings": []})
        elif asked := re.fullmatch(rf"/api/datasets/{DATASET}/tree/(\w+)/?(.*)", path):
            self._send_tree(self._commit(asked[1])[1], asked[2], "recursive=true" in self.path.lower())
        else:
            self.send(404, b"", {"X-Error-Code": "RepoNotFound"})

    def _commit(self, revision: str) -> tuple[str, Commit]:
        if revision == "main":
            files = {path.relative_to(self._folder).as_posix(): path for path in self._folder.rglob("*")}
            commit = {name: path.read_bytes() for name, path in sorted(files.items()) if path.is_file()}
            revision = hashlib.sha1(repr(commit).encode()).hexdigest()
            self._commits[revision] = commit
        return revision, self._commits[revision]

    def _send_tree(self, commit: Commit, below: str, is_deep: bool) -> None:
        found: dict[str, Any] = {}
        for name, content in commit.items():
            about = {"type": "file", "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
            found[name] = about | {"path": name}
            for folder in PurePosixPath(name).parents:
                found[str(folder)] = {"type": "directory", "size": 0, "oid": "0", "path": str(folder)}
        base = PurePosixPath(below or ".")
        wanted = [
            entry
            for name, entry in found.items()
            if name != "." and (base in PurePosixPath(name).parents if is_deep else base == PurePosixPath(name).parent)
        ]
        self.send_json(wanted) if wanted else self.send(404, b"", {"X-Error-Code": "EntryNotFound"})

    def _send_file(self, content: bytes | None) -> None:
        if content is None:
            self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
        elif asked := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(asked[1]), min(int(asked[2] or len(content)), len(content) - 1)
            headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}"}
            self.send(206 if first <= last else 416, content[first : last + 1], headers)
        else:
            self.send(200, content, {})
