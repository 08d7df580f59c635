"""The flow run under way: its name, the task that it submitted last, and its final state.

The message of a final state is one sentence, which the Prefect UI and the log show.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID

import prefect.runtime
from prefect import get_run_logger
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import State
from prefect.context import FlowRunContext
from prefect.states import Failed

from overnight.flows.report.spending import spent_text
from overnight.tasks.config.masking import masked
from overnight.tasks.errors import OvernightError, explain, first_line
from overnight.tasks.rows import reasons

LONGEST = 300  # characters of a message
Reasons = Sequence[tuple[str, int]]  # each reason of quarantined rows, with its number of rows, the most frequent first


def is_run_of_deployment() -> bool:
    """Return True if the flow run under way was started through a deployment. The runs inside it were not."""
    context = FlowRunContext.get()
    return bool(context and context.flow_run and context.flow_run.deployment_id)


def stage() -> str:
    """Return the name of that task; "plan" before the first or outside a flow run."""
    return str(of_task_runner("stage", "plan"))


def task_run_id() -> UUID | None:
    """Return the id of the run of that task; None before the first or outside a flow run."""
    run_id: UUID | None = of_task_runner("task_run_id", None)
    return run_id


def of_task() -> dict[str, Any]:
    """Return the `extra` of a log record that puts the record under that task run in the Prefect UI."""
    run_id = task_run_id()
    return {"task_run_id": str(run_id)} if run_id else {}


def of_task_runner(name: str, default: Any) -> Any:
    """Return an attribute of the task runner of the flow run under way, or `default` outside a flow run."""
    return getattr(getattr(FlowRunContext.get(), "task_runner", None), name, default)


def rename_flow_run(name: str) -> None:
    """Give the flow run under way this name, in the server and in this process.

    Prefect's own `flow_run_name` would load the job a second time.
    """
    with get_client(sync_client=True) as client:
        client.update_flow_run(UUID(prefect.runtime.flow_run.id), name=name).raise_for_status()
    note_name(name)


def note_name(name: str) -> None:
    """Change the name of the flow run in this process only: for its log, and for `prefect.runtime.flow_run.name`."""
    context = FlowRunContext.get()
    if context and context.flow_run:
        context.flow_run.name = name


@contextlib.contextmanager
def named_if_invalid(name: str) -> Iterator[None]:
    """Give the flow run under way this name if the body, which loads its job, raises an `OvernightError`."""
    try:
        yield
    except OvernightError:
        with contextlib.suppress(Exception):  # the error matters more than the name
            rename_flow_run(name)
        raise


def invalid(job_path: str) -> str:
    """Return the name for a flow run whose job or partition is invalid: `<name of the job file>/invalid`."""
    return f"{Path(job_path).stem}/invalid"


def in_one_sentence(run: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a flow's function, so that an `OvernightError` ends the run as Failed, with one sentence as its message."""

    @functools.wraps(run)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        try:
            return run(*args, **kwargs)
        except OvernightError as error:
            if "\n" in error.message:
                get_run_logger().error(error.message)  # the state has its first sentence
            return Failed(message=failure_message(error), data=error)

    return wrapped


@contextlib.contextmanager
def failed_before_it_began(flow_run_id: UUID) -> Iterator[None]:
    """Set the flow run to Failed if the body raises and the run has not ended, for example because Ray does not start.

    Prefect sets a run to Running before it starts the task runner, and leaves it so if the task runner does not start.
    """
    try:
        yield
    except Exception as error:
        with contextlib.suppress(Exception), get_client(sync_client=True) as client:
            state = client.read_flow_run(flow_run_id).state
            if state is None or not state.is_final():
                end: State[Any] = Failed(message=failure_message(explain(error, "plan")))
                client.set_flow_run_state(flow_run_id, end, force=True)
        raise


def publish_message(receipt: Mapping[str, Any], why: Reasons, verdict: str = "") -> str:
    """Return the verdict on a run that published, with the reasons of quarantined rows and the seconds.

    Without a verdict, return the counts in its place.
    """
    if verdict:
        reasons_told = f"Quarantined: {reasons.told(why)}. " if why else ""
        return _short(f"{verdict} {reasons_told}{_seconds_and_cost(receipt)}")
    rows = _rows(receipt["rows_out"])
    parts = [f"sample of {rows}, nothing published" if receipt["limit_rows"] else f"{rows} published"]
    parts += [*_counts(receipt, why), "checks passed"]
    if warnings := len(receipt.get("warnings", [])):
        parts.append(f"{warnings} warning{'s' * (warnings > 1)}")
    return ", ".join([*parts, _seconds_and_cost(receipt)])


def _seconds_and_cost(receipt: Mapping[str, Any]) -> str:
    seconds, spent = f"{receipt['seconds']:,.1f} s", spent_text(receipt)
    return f"{seconds}, {spent}" if spent else seconds


def unchanged_message(receipt: Mapping[str, Any], is_retry: bool) -> str:
    """Return why a run, or a retry of quarantined rows, has nothing to do."""
    reason = "without quarantined rows" if is_retry else "and not stale"
    if receipt.get("undo") and not is_retry:
        reason = f"by an undo of {receipt['undo']['undone']['generation']}; force starts a run"
    counts = ", ".join([_rows(receipt["rows_out"]), *_counts(receipt, [])])
    return f"nothing ran: {receipt['partition']} is published {reason}, since {receipt['finished_at']} ({counts})"


def search_message(result: Mapping[str, Any]) -> str:
    """Return the number of matches, the searched rows and the seconds of a search, as one sentence."""
    partitions = len(result["partitions"])
    scope = f"{_rows(result['rows'])} of {partitions:,} partition{'s' * (partitions != 1)}"
    return f"{len(result['matches']):,} similar rows found in {scope}, {result['seconds']:,.1f} s"


def failure_message(error: OvernightError) -> str:
    """Return the failed stage and the first sentence of the error, for a run that failed, in at most 300 characters."""
    stage = f" in {error.stage}" if error.stage else ""
    return _short(f"{error.status}{stage}: {first_line(error.message) or error.error_type}")


def _short(message: str) -> str:
    message = " ".join(masked(message).split())  # masked first: half a secret has no form
    return message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"


def _counts(receipt: Mapping[str, Any], why: Reasons) -> list[str]:
    counts = []
    if count := receipt["rows_filtered"]:
        counts.append(f"{count:,} filtered")
    if count := receipt["rows_quarantined"]:
        counts.append(f"{count:,} quarantined" + (f" ({reasons.told(why)})" if why else ""))
    return counts


def _rows(count: int) -> str:
    return f"{count:,} row{'s' * (count != 1)}"
