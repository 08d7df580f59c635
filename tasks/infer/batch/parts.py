"""The parts of a run's requests: each is a sealed file of requests, and a small record of the batch made of it.

The record is written before each act at the provider, so that any later process knows which acts may have happened.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.storage.location import Location

MILLION = 1_000_000
# The states of a part, in order. In UPLOADING and CREATING the act may have happened.
SEALED, UPLOADING, UPLOADED, CREATING, CREATED, DONE = (
    *("sealed", "uploading", "uploaded", "creating", "created"),
    "done",
)
UNDER_WAY = (CREATING, CREATED)  # at the provider, and to be paid


@dataclass(frozen=True)
class Request:
    """The request of a row, under the key of its answer; `tokens` is an estimate that includes the answer.

    `reuse_key` is the key under which later runs find the answer.
    """

    key: str
    body: str
    tokens: float
    reuse_key: str = ""


@dataclass
class Part:
    """A sealed file of requests, and what has become of it. Times are in seconds since 1970, by this machine."""

    name: str  # `00007`, and `00007.1` for its rows that the first batch left without an answer
    digest: str
    rows: int
    tokens: float
    tries: int = 1  # of these rows, with this one
    state: str = SEALED
    file: str = ""  # its id at the provider
    batch: str = ""
    creates: int = 0  # that may have made a batch
    intended_at: float = 0.0  # of the last one
    cancelled_at: float = 0.0
    missed_at: float = 0.0  # the provider did not show the batch, or all its results
    not_before: float = 0.0  # the provider had no room for it
    rest: str = ""  # the part with its rows that go into another batch
    batches: list[dict[str, Any]] = field(default_factory=list)  # that have ended, as the receipt has them


@dataclass(frozen=True)
class Parts:
    """The parts of one run, in the folder of its generation."""

    folder: Location
    generation: str

    @classmethod
    def of(cls, run: Run) -> "Parts":
        return cls(run.batches, run.generation)

    def label(self, part: Part) -> str:
        """Return the name of a part at the provider, by which its batch is found."""
        return f"{self.generation}/{part.name}-{part.digest[:16]}"

    def file_name(self, part: Part) -> str:
        return f"overnight-{self.label(part).replace('/', '-')}.jsonl"

    def all(self) -> list[Part]:
        """Return the parts. The rest of a part counts once the part names it: before, it is sealed again."""
        names = [name for name in self.folder.names() if name.startswith("part-") and name.endswith(".json")]
        records = self.folder.read_each(names)
        parts = sorted((Part(**json.loads(records[name])) for name in names), key=lambda part: part.name)
        rests = {part.rest for part in parts}
        return [part for part in parts if "." not in part.name or part.name in rests]

    def open_batches(self) -> list[str]:
        """Return the ids of the batches at the provider; the label of one whose create had no answer."""
        return [part.batch or self.label(part) for part in self.all() if part.state in UNDER_WAY]

    def save(self, part: Part) -> None:
        write_json(self.folder / f"part-{part.name}.json", asdict(part))

    def requests(self, part: Part) -> bytes:
        """Return the sealed file of a part."""
        return (self.folder / f"part-{part.name}.jsonl").read_bytes()

    def is_sealed(self) -> bool:
        """Return True if all requests are sealed. Before, no part is uploaded."""
        return (self.folder / "sealed.json").exists()

    def sealed_at(self) -> float:
        return float((read_json(self.folder / "sealed.json") or {}).get("at", 0.0))

    def reuse_keys(self, part: Part) -> dict[str, str]:
        """Return under what later runs find the answers, by the keys of a part's requests."""
        return read_json(self.folder / f"reuse-{part.name.partition('.')[0]}.json") or {}

    def seal(
        self,
        requests: Iterable[Request],
        line: Callable[[str, str], bytes],
        bounds: BatchSettings,
        first_rows: int | None = None,
    ) -> Iterator[Part]:
        """Write the parts of all requests, and yield each. An interrupted sealing may have left others.

        The first part has at most `first_rows` requests.
        """
        self.folder.remove()
        for number, group in enumerate(_groups(requests, line, bounds, first_rows or bounds.rows)):
            if group.reuse_keys:
                write_json(self.folder / f"reuse-{number:05}.json", group.reuse_keys)
            part = self._write(f"{number:05}", list(group.lines.values()), group.tokens)
            self.save(part)
            yield part

    def finish(self, moment: float) -> None:
        """Note that all requests are sealed."""
        write_json(self.folder / "sealed.json", {"at": moment})

    def seal_rest(self, part: Part, keys: set[str], tries: int) -> Part:
        """Write the part with those requests of a part that have these keys. A second call writes the same."""
        lines = [line for line in self.requests(part).splitlines(keepends=True) if key_in(line) in keys]
        base, _, number = part.name.partition(".")
        rest = self._write(f"{base}.{int(number or 0) + 1}", lines, part.tokens * len(lines) / part.rows)
        rest.tries = tries
        self.save(rest)
        return rest

    def _write(self, name: str, lines: list[bytes], tokens: float) -> Part:
        content = b"".join(lines)
        (self.folder / f"part-{name}.jsonl").write_bytes(content)
        return Part(name, hashlib.sha256(content).hexdigest(), len(lines), tokens)


@dataclass
class _Group:
    lines: dict[str, bytes] = field(default_factory=dict)  # by key: a provider refuses a file with one key twice
    size: int = 0
    tokens: float = 0.0
    reuse_keys: dict[str, str] = field(default_factory=dict)

    def has_room(self, line: bytes, tokens: float, bounds: BatchSettings, rows: int) -> bool:
        most_tokens = bounds.enqueued_tokens
        return (
            len(self.lines) < rows
            and self.size + len(line) <= bounds.megabytes * MILLION
            and (most_tokens is None or self.tokens + tokens <= most_tokens)
        )


def _groups(
    requests: Iterable[Request], line: Callable[[str, str], bytes], bounds: BatchSettings, first_rows: int
) -> Iterator[_Group]:
    """Yield the requests of each part. One that is larger than any file may be is left to the stream."""
    group, rows = _Group(), min(first_rows, bounds.rows)
    for request in requests:
        content = line(request.key, request.body)
        if len(content) > bounds.megabytes * MILLION:
            continue
        if group.lines and not group.has_room(content, request.tokens, bounds, rows):
            yield group
            group, rows = _Group(), bounds.rows
        if request.key not in group.lines:
            group.lines[request.key] = content
            group.size += len(content)
            group.tokens += request.tokens
            if request.reuse_key:
                group.reuse_keys[request.key] = request.reuse_key
    if group.lines:
        yield group


def key_in(line: bytes) -> str:
    """Return the key in a line of a sealed file."""
    record = json.loads(line)
    return str(record.get("custom_id") or record["key"])  # Gemini's lines have `key`
