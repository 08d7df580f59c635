"""The notice of a run: its report, the event of its publish, the messages of `notify`, and events of OpenLineage.

Every end of a run or undo passes this one place. A notice that cannot be sent is a warning in the run's log, which the
terminal shows, and changes nothing of the run. A sample, and a run with nothing to run, give no notice.
"""

import contextlib
import logging
from collections.abc import Iterator, Mapping
from typing import Any

import prefect.runtime
from prefect import get_run_logger
from prefect.context import FlowRunContext
from prefect.utilities.urls import url_for

from overnight.flows.job.model import Job
from overnight.flows.job.notify import Receiver
from overnight.flows.notices.lineage import Lineage
from overnight.flows.notices.message import Message, counts_of, harmless
from overnight.flows.notices.sending import send
from overnight.flows.report.report import Report, facts_file, keep_report
from overnight.flows.report.verdict import Verdict
from overnight.flows.runs import flow_run
from overnight.flows.runs.cancellation import INTERRUPTIONS
from overnight.flows.schedule.run_after import announce
from overnight.tasks.artifacts import dispensable
from overnight.tasks.config.masking import filled_in, masked
from overnight.tasks.errors import BudgetReached, OvernightError, explain
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.storage.location import Location


class Notice:
    """What others learn of one run. A run calls `begin` once it holds its partition, and then `end`."""

    def __init__(self, job: Job, partition: str, file: str = "JOB.yaml", is_sample: bool = False) -> None:
        self.job, self.partition, self.file, self.is_sample = job, partition, file, is_sample
        self.lineage = Lineage(job, partition)
        self.record: dict[str, Any] = {}  # the receipt, or the record of a run that did not publish
        self.sentence, self.report = "", ""
        self.events: set[str] = set()  # of `notify`, which happened
        self.facts: Location | None = None  # beside the report

    def begin(self, run: Run) -> None:
        if not self.is_sample:
            with warned("OpenLineage"):
                self.lineage.start(run)

    def end(self, run: Run, record: Mapping[str, Any]) -> Verdict | None:
        """Write the report of the run, send the event of a publish, and return the verdict.

        `record` is the receipt of the run, or what `failure.json` has.
        """
        report = keep_report(self.job, run, record, self.file)
        self.record = dict(report.record if report else record)
        self.events.add(str(self.record["status"]))
        if self.record.get("error_type") == BudgetReached.__name__:
            self.events.add("budget")
        if record["status"] == "published":
            announce(self.job, run, record)
        if not report:
            return None
        self._add(report, run)
        return report.verdict

    def fail(self, error: OvernightError) -> None:
        """Note the error of a run that failed, also before it held its partition."""
        if not self.record:
            self.record = {"status": error.status, "error_message": str(error), "stage": error.stage}
            self.events.add(error.status)
        self.sentence = self.sentence or flow_run.failure_message(error)

    def send(self) -> None:
        """Send the messages, and the last event of OpenLineage."""
        if not self.record or self.is_sample:
            return
        with warned("OpenLineage"):
            self.lineage.finish(self.record)
        outcomes = {}
        for receiver in self.job.receivers:
            if events := self._events_for(receiver):
                outcomes[receiver.name] = "not sent"
                with warned(receiver.name):
                    send(receiver, self._message(events))
                    outcomes[receiver.name] = "sent"
        if outcomes and self.facts:
            with dispensable("the facts of the report have no notices"):
                write_json(self.facts, {**(read_json(self.facts) or {}), "notices": outcomes})

    def _add(self, report: Report, run: Run) -> None:
        self.sentence = report.verdict.sentence
        self.report = filled_in(str(run.ledger / "reports" / f"{run.generation}.html"))
        self.facts = run.ledger / facts_file(run.generation)
        if any(column.has_drift for column in report.columns):
            self.events.add("drift")

    def _events_for(self, receiver: Receiver) -> tuple[str, ...]:
        events = self.events
        if self.record["status"] == "published" and self._quarantined_share() > receiver.quarantined_over:
            events = events | {"quarantined"}
        return tuple(event for event in receiver.on if event in events)

    def _quarantined_share(self) -> float:
        return float(self.record.get("rows_quarantined", 0) / max(self.record.get("rows_in", 0), 1))

    def _message(self, events: tuple[str, ...]) -> Message:
        return Message(
            job=self.job.name,
            partition=self.partition,
            status=str(self.record["status"]),
            events=events,
            sentence=harmless(self.sentence or flow_run.publish_message(self.record, [])),
            counts=counts_of(self.record),
            report=self.report,
            flow_run=_page_in_ui(),
        )


def _page_in_ui() -> str:
    run_id = prefect.runtime.flow_run.id
    return (url_for("flow-run", obj_id=run_id) or "") if run_id else ""


@contextlib.contextmanager
def noticed(job: Job, partition: str, file: str, is_sample: bool) -> Iterator[Notice]:
    """Yield the notice of a run, and send it after the body, also if the body fails or is interrupted."""
    notice = Notice(job, partition, file, is_sample)
    try:
        yield notice
    except Exception as error:
        notice.fail(explain(error, flow_run.stage()))
        raise
    finally:
        with contextlib.suppress(*INTERRUPTIONS):  # the run has ended, so there is nothing to interrupt
            notice.send()


@contextlib.contextmanager
def warned(receiver: str) -> Iterator[None]:
    """Run the body. If it fails, log a warning that names the receiver."""
    try:
        yield
    except OvernightError as error:
        _log().warning("notice not sent: %s", error)
    except Exception as error:
        _log().warning("notice not sent: %s: %s: %s", receiver, type(error).__name__, masked(str(error)))


def _log() -> Any:
    """Return the log of the run; an undo has none."""
    return get_run_logger() if FlowRunContext.get() else logging.getLogger(__name__)
