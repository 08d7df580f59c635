"""The jobs that a job follows (`run_after`): which of their partitions are published, and which changed since.

A generation records which publish of each it follows, because a later publish makes the partition stale.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.ledger.reader import read_files
from overnight.flows.ledger.staleness import Reason
from overnight.tasks.config.partition_names import time_and_value
from overnight.tasks.ingest.kinds import JobRows, Upstream
from overnight.tasks.state.run import ledger_name
from overnight.tasks.storage.location import Location

Generations = dict[str, dict[str, str]]  # job -> partition -> the generation of its newest publish
ALL = "all published"


@dataclass(frozen=True)
class ChainJob:
    """A job in a chain, and its partitions that the last job of the chain needs. Both days are None for `all`."""

    job_file: Path
    start: date | None
    end: date | None


def chain_of(job: Job, start: date | None, end: date | None) -> list[ChainJob]:
    """Return the jobs that a job reads or follows, and the jobs that these need, the first to run first.

    `start` and `end` are the job's own days. A job that is needed twice comes once, with the days of both.
    """
    first_days: dict[str, date | None] = {}
    if isinstance(job.source, JobRows):
        first_days[job.source.upstream.job_file] = start
    for after in job.run_after:
        file, first = after.upstream.job_file, after.first_day(start)
        before = first_days.get(file, first)
        if before and first:
            first = min(before, first)
        first_days[file] = first
    jobs: dict[Path, ChainJob] = {}
    for file, first in first_days.items():
        upstream = load_job(file)
        own = ChainJob(Path(file), None, None)
        if upstream.periods and upstream.periods.every:
            own = ChainJob(Path(file), first, end)
        for member in [*chain_of(upstream, own.start, own.end), own]:
            previous = jobs.get(member.job_file)
            if previous and previous.start and member.start:
                jobs[member.job_file] = replace(previous, start=min(previous.start, member.start))
            else:
                jobs[member.job_file] = member
    return list(jobs.values())


def generations_followed(job: Job, partition: str) -> Generations:
    """Return the published generations of the other jobs that a partition of the job needs now."""
    newest: Generations = {}
    for after in job.run_after:
        generations = _published(after.upstream, after.partitions(partition))
        if after.partition == "all" and generations:
            generations = {ALL: max(generations.values())}
        newest[after.upstream.name] = generations
    return newest


def lacking(job: Job, partition: str) -> str:
    """Return a sentence on the first partition of another job that is not published, or an empty text."""
    newest = generations_followed(job, partition)
    for after in job.run_after:
        name, generations = after.upstream.name, newest[after.upstream.name]
        needs = after.partitions(partition)
        own = needs and after.upstream.names(partition)
        first = _first_time(after.upstream) if len(needs) > len(own) else ""
        for key in needs:
            if key not in generations and (key in own or time_and_value(key)[0] >= first):
                return after.upstream.lacking(key)
        if not generations:
            return f"expected a published partition of the job {name}, found none"
    return ""


def changes_upstream(job: Job, partition: str, receipt: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a sentence for each other job that has published a needed partition since the receipt's generation."""
    if not job.run_after or "after" not in receipt:  # then the job followed no other one
        return ()
    earlier, sentences = receipt["after"], []
    for name, generations in generations_followed(job, partition).items():
        before = earlier.get(name, {})
        names = sorted(key for key in generations if generations[key] != before.get(key))
        if names:
            sentence = f"follows {name}, which was published again since: {', '.join(names)}"
            sentences.append(Reason(sentence, "upstream"))
    return tuple(sentences)


def _published(upstream: Upstream, partitions: list[str]) -> dict[str, str]:
    """Return the generation of each published partition among `partitions`, or among all if there are none."""
    state = Location(upstream.state)
    names = {ledger_name(upstream.partition_column, partition) for partition in partitions}
    ledgers = read_files(state, names or set(state.names()))
    generations = {}
    for ledger in ledgers.values():
        if ledger.receipt and ledger.receipt["job"] == upstream.name:
            generations[ledger.receipt["partition"]] = ledger.receipt["generation"]
    return generations


def _first_time(upstream: Upstream) -> str:
    """Return the time of the first partition that the job ever ran. Without any, return a text after all times."""
    prefix = f"{upstream.partition_column}="
    times = ["~"]
    for name in Location(upstream.state).names():
        if name.startswith(prefix):
            times.append(time_and_value(name.removeprefix(prefix))[0])
    return min(times)
