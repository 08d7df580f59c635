"""The checks of what a job file names: code, weights, optional libraries, the schedule, and who owns the sink."""

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

from overnight.flows.doctor.examine import Finding, Level
from overnight.flows.estimate import overrun
from overnight.flows.job.columns import column_problems
from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run, refuse_foreign_files, refuse_other_job
from overnight.flows.schedule.cron import next_cron_time
from overnight.flows.schedule.partitions import resolve_partition
from overnight.tasks.config.extras import require_installed
from overnight.tasks.errors import OvernightError
from overnight.tasks.ingest.in_process import first_columns


def check_code(job: Job, imports: bool = True) -> Iterator[Finding]:
    """Check that the user's classes and functions exist and take the arguments in the job file."""
    codes = job.code()
    findings = _wrong("code", *(code.check_source for code in codes))
    if imports and not findings:
        findings = _wrong("code", *(code.check_import for code in codes))
    yield from findings
    if codes and not findings:
        yield Finding("code", "ok", f"{', '.join(code.target for code in codes)} fit their arguments")


def check_models(job: Job) -> Iterator[Finding]:
    """Check that the weights of the job's models, and the code of its models and steps, exist."""
    findings = _wrong("models", job.ingredients)
    yield from findings
    if job.models and not findings:
        yield Finding("models", "ok", f"{', '.join(model.shown_name() for model in job.models)}: found")
    for model in job.models:
        for remark in model.remarks():
            yield Finding("prompt", "warning", remark)
        reason = model.not_remembered()
        if job.memory and reason and model.remember is None:
            yield Finding("memory", "warning", f"{model.shown_name()} runs on every row: {reason}")


def check_libraries(job: Job) -> Iterator[Finding]:
    """Check that the optional libraries of the job's steps and models are installed here.

    With `RAY_ADDRESS` a missing library is only a warning, because the nodes of the cluster may have it.
    """
    level: Level = "warning" if os.environ.get("RAY_ADDRESS") else "wrong"
    kinds: dict[str, str] = {}
    for entry in [*job.preprocess, *job.inference]:
        kinds |= dict.fromkeys(entry.libraries(), entry.kind)
    for library, kind in kinds.items():
        for finding in _wrong("libraries", partial(require_installed, library, f"kind: {kind}")):
            yield replace(finding, level=level)


def check_columns(job: Job) -> Iterator[Finding]:
    """Check that the first inputs of the partition that is due have the columns that the job names.

    There is no finding if the job file alone shows the columns, because the load of the job has checked them then.
    """
    if job.source.column_names_made() is not None:
        return
    day = resolve_partition(job, None, None, datetime.now(UTC))
    try:
        columns = first_columns(job.source, day)
    except OvernightError as error:
        yield Finding("columns", "ok", f"not checked: {error}")  # `check_source` reports inputs that are not there
        return
    if not columns:
        return
    problems = column_problems(job, columns)
    level: Level = "warning" if job.source.rows_show_columns else "wrong"
    for line in problems:
        yield Finding("columns", level, f"{line}; these are the first inputs of the partition {day}")
    if not problems:
        yield Finding("columns", "ok", f"the first inputs of {day} have the columns that the job names")


def check_schedule(job: Job) -> Iterator[Finding]:
    """Check that the schedule fires again. The finding has the time and the partition of the next run."""
    if not job.schedule:
        return
    fire = next_cron_time(job.schedule, datetime.now(UTC))
    if fire is None:
        yield Finding("schedule", "wrong", f"{job.schedule.cron} never fires", "Correct schedule.cron.")
        return
    partition, moment = resolve_partition(job, None, fire, fire), fire.astimezone(job.timezone)
    sentence = f"the next run starts {moment:%Y-%m-%d %H:%M %Z}, for the partition {partition}"
    yield Finding("schedule", "ok", sentence)


def check_budget(job: Job) -> Iterator[Finding]:
    """Find by how much a run may exceed its budget."""
    if sentence := overrun(job):
        yield Finding("budget", "ok", sentence)


def check_owner(job: Job) -> Iterator[Finding]:
    """Check that the sink has no results of other jobs, and no foreign files, for the partition that is due."""
    run = describe_run(job, resolve_partition(job, None, None, datetime.now(UTC)))
    findings = _wrong("sink", lambda: refuse_other_job(run))
    findings = findings or _wrong("sink", lambda: refuse_foreign_files(run, job.sink))
    yield from findings or [Finding("sink", "ok", f"{job.sink.shown(run)} has no results of others")]


def _wrong(what: str, *looks: Callable[[], object]) -> list[Finding]:
    findings = []
    for look in looks:
        try:
            look()
        except OvernightError as error:
            findings.append(Finding(what, "wrong", str(error)))
    return findings
