"""A stand-in for the model side of Hugging Face's hub: one model, someone/tiny, with branches, tags and commits."""

import contextlib
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from tests.hub import Answer, serving

MODEL = "someone/tiny"
OLD, NEW = "0" * 39 + "1", "c0ffee" + "0" * 34


@dataclass
class ModelHub:
    """The server's `address`, its `revisions` (branch or tag -> commit), and the `files` of each commit."""

    files: dict[str, dict[str, bytes]]
    revisions: dict[str, str]
    status: int = 200  # of every answer
    seen: list[str] = field(default_factory=list)  # the paths of requests
    address: str = ""


@contextlib.contextmanager
def model_hub(files: dict[str, bytes], old: dict[str, bytes] | None = None) -> Iterator[ModelHub]:
    """A running hub: `main` is NEW with `files`, and the tag v1 is OLD with `old`, or with the same files."""
    hub = ModelHub({NEW: files, OLD: files if old is None else old}, {"main": NEW, "v1": OLD})
    with serving(partial(_Answer, hub)) as hub.address:
        yield hub


def use(hub: ModelHub, cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the hub's client in this process to `hub` and to a cache of its own."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", hub.address)  # both come from HF_ENDPOINT, when this is imported
    template = f"{hub.address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", cache)


class _Answer(Answer):
    def __init__(self, hub: ModelHub, *arguments: Any) -> None:
        self._hub = hub
        super().__init__(*arguments)

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self._hub.seen.append(path)
        if self._hub.status != 200:
            self._answer(b"", self._hub.status)
        elif found := re.fullmatch(rf"/api/models/{MODEL}(?:/revision/([^/]+))?", path):
            self._about(found[1] or "main")
        elif found := re.fullmatch(rf"/api/models/{MODEL}/tree/([^/]+)/?", path):
            files = self._files(found[1]) or {}
            self.send_json(
                [{"type": "file", "path": name, "size": len(data), "oid": "0"} for name, data in files.items()]
            )
        elif found := re.fullmatch(rf"/{MODEL}/resolve/([^/]+)/(.+)", path):
            content = (self._files(found[1]) or {}).get(found[2])
            commit = self._hub.revisions.get(found[1], found[1])
            self._answer(content or b"", *(() if content is not None else (404, "EntryNotFound")), commit=commit)
        else:
            self._answer(b"", 404, "RepoNotFound")

    def _files(self, revision: str) -> dict[str, bytes] | None:
        return self._hub.files.get(self._hub.revisions.get(revision, revision))

    def _about(self, revision: str) -> None:
        files = self._files(revision)
        if files is None:
            self._answer(b"", 404, "RevisionNotFound")
            return
        siblings = [{"rfilename": name} for name in files]
        self.send_json({"id": MODEL, "sha": self._hub.revisions.get(revision, revision), "siblings": siblings})

    def _answer(self, body: bytes, status: int = 200, error: str = "", commit: str = "") -> None:
        tag = hashlib.sha256(body).hexdigest()
        self.send(status, body, {"ETag": f'"{tag}"', "X-Repo-Commit": commit, "X-Error-Code": error})
