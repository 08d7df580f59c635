"""The message about a run, or about a partition that is late: for people as text, and for programs as JSON values.

Its texts may contain texts of rows and errors. They are masked, without control characters, on one line, and without
the characters with which Slack, mail and chats begin a tag or mention users.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overnight.tasks.config.masking import masked, printable

LONGEST = 1000  # characters of a sentence
COUNTS = ("rows_in", "rows_out", "rows_filtered", "rows_quarantined", "seconds")
LOOK_ALIKES = str.maketrans({"<": "‹", ">": "›", "@": "＠"})  # noqa: RUF001 - they have no meaning to a receiver


@dataclass(frozen=True)
class Message:
    """What a receiver gets. `events` has those of its events that happened."""

    job: str
    partition: str
    status: str
    events: tuple[str, ...]
    sentence: str
    counts: Mapping[str, Any] = field(default_factory=dict)
    report: str = ""  # the path or the URL of the page
    flow_run: str = ""  # the address of the run in the Prefect UI

    @property
    def title(self) -> str:
        more = ""
        if self.status == "published":
            more = "".join(f", {event}" for event in self.events if event != "published")
        status = "is late" if self.status == "late" else self.status
        return f"{self.job}/{self.partition} {status}{more}"

    @property
    def text(self) -> str:
        """Return the sentence, the counts and the links, each on a line."""
        counts = ", ".join(f"{_number(value)} {name.replace('_', ' ')}" for name, value in self.counts.items())
        links = [f"{name}: {link}" for name, link in (("Report", self.report), ("Run", self.flow_run)) if link]
        return "\n".join(filter(None, [self.sentence, counts, *links]))

    def as_json(self) -> dict[str, Any]:
        """Return the message as the body of a webhook."""
        names = {"job": self.job, "partition": self.partition, "status": self.status, "events": list(self.events)}
        links = {"report": self.report or None, "flow_run": self.flow_run or None}
        return {**names, "title": self.title, "sentence": self.sentence, "text": self.text, **links, **self.counts}


def counts_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the counts of a receipt. The record of a run that failed has none."""
    return {name: record[name] for name in COUNTS if record.get("status") == "published" and name in record}


def harmless(text: str) -> str:
    """Return a text of rows or errors as a sentence of a message."""
    line = " ".join(printable(masked(text)).split())
    line = line.encode(errors="replace").decode().translate(LOOK_ALIKES)
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
