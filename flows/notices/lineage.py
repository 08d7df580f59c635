"""Events of OpenLineage: START when a run has its partition, and COMPLETE, FAIL or ABORT at its end.

The library `openlineage-python` sends them to the place in its own environment variables. Without `OPENLINEAGE_URL`,
`OPENLINEAGE_CONFIG` or a variable `OPENLINEAGE__TRANSPORT...` there are no events.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import prefect.runtime

from overnight.flows.job.model import Job
from overnight.flows.notices.datasets import PRODUCER, custom_facet, inputs_of, output_of, sql_of
from overnight.flows.notices.sending import within
from overnight.tasks.config.extras import require_extra
from overnight.tasks.config.masking import masked, printable
from overnight.tasks.infer.kinds import Predictor
from overnight.tasks.state.run import Run

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient

VARIABLES = ("OPENLINEAGE_URL", "OPENLINEAGE_CONFIG", "OPENLINEAGE__TRANSPORT")
ENDS = {"published": "COMPLETE", "cancelled": "ABORT", "failed": "FAIL"}
LONGEST_SECONDS = 15.0  # the library tries again for a while


def is_configured() -> bool:
    """Return True if the environment names a place for the events."""
    return any(name.startswith(VARIABLES) for name in os.environ)


class Lineage:
    """The events of one run, which has an id of its own: a run of Prefect, its parent, may be retried."""

    def __init__(self, job: Job, partition: str) -> None:
        self.job, self.partition = job, partition
        self.run: Run | None = None  # as long as the partition is not held
        self.has_started = False

    def start(self, run: Run) -> None:
        self.run = run
        if is_configured():
            self._emit("START", {})

    def finish(self, record: Mapping[str, Any]) -> None:
        """Send the last event, and START before it for a run that failed before it held its partition."""
        if not is_configured():
            return
        if not self.has_started:
            self._emit("START", {})
        self._emit(ENDS[record["status"]], record)

    def _emit(self, kind: str, record: Mapping[str, Any]) -> None:
        client = self._client
        from openlineage.client import event_v2 as events

        self.has_started = True
        namespace = os.environ.get("OPENLINEAGE_NAMESPACE", "overnight")
        event = events.RunEvent(
            eventType=events.RunState(kind),
            eventTime=datetime.now(UTC).isoformat(),
            producer=PRODUCER,
            run=events.Run(self._id, self._run_facets(namespace, record)),
            job=events.Job(namespace, self.job.name, self._job_facets()),
            inputs=inputs_of(self.job, self.run, record),
            outputs=[output_of(self.job, record)],
        )
        within(LONGEST_SECONDS, "OpenLineage", lambda: client.emit(event))

    @cached_property
    def _client(self) -> "OpenLineageClient":
        """Return the library's client, which writes the key into variables that every process below would inherit."""
        require_extra("openlineage", "OPENLINEAGE_URL")
        from openlineage.client import OpenLineageClient

        before = set(os.environ)
        try:
            return OpenLineageClient()
        finally:
            for name in os.environ.keys() - before:
                del os.environ[name]

    @cached_property
    def _id(self) -> str:
        from openlineage.client.uuid import generate_new_uuid

        return str(generate_new_uuid())

    def _run_facets(self, namespace: str, record: Mapping[str, Any]) -> dict[str, Any]:
        from openlineage.client import facet_v2 as facets

        engine = {"version": version("ray"), "name": "Ray", "openlineageAdapterVersion": version("overnight")}
        result: dict[str, Any] = {
            "processing_engine": facets.processing_engine_run.ProcessingEngineRunFacet(**engine, producer=PRODUCER)
        }
        if flow_run := prefect.runtime.flow_run.id:
            parent = facets.parent_run
            owner = parent.Job(namespace, f"batch-inference/{self.job.name}")
            result["parent"] = parent.ParentRunFacet(parent.Run(flow_run), owner, producer=PRODUCER)
        if moment := self.run and self.run.scheduled_for:
            result["nominalTime"] = facets.nominal_time_run.NominalTimeRunFacet(moment, producer=PRODUCER)
        if record.get("status") == "failed":
            message = printable(masked(f"{record.get('stage') or 'plan'}: {record.get('error_message')}"))
            result["errorMessage"] = facets.error_message_run.ErrorMessageRunFacet(message, "python", producer=PRODUCER)
        if self.run:
            result["overnight_run"] = custom_facet("OvernightRunFacet", **self._identity(self.run))
        return result

    def _identity(self, run: Run) -> dict[str, Any]:
        """Return what decides the results: the digest of all, and the files of each model with their versions."""
        models = []
        for entry, files in zip(self.job.inference, run.ingredients["models"], strict=True):
            if isinstance(entry, Predictor):
                commit = run.commits.get(entry.hub_name() or "")
                name = masked(entry.name or entry.shown_name())
                models.append({"name": name, "kind": entry.kind, "commit": commit, "files": files})
        identity = {"partition": run.partition, "generation": run.generation, "attempt": run.attempt}
        return {**identity, "fingerprint": run.fingerprint, "models": models}

    def _job_facets(self) -> dict[str, Any]:
        from openlineage.client import facet_v2 as facets

        kind = facets.job_type_job.JobTypeJobFacet("BATCH", "OVERNIGHT", "JOB", producer=PRODUCER)
        query = sql_of(self.job)
        sql = {"sql": facets.sql_job.SQLJobFacet(query, producer=PRODUCER)} if query else {}
        return {"jobType": kind, **sql}
