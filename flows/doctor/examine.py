"""`overnight doctor`: check everything that a run needs, and return advice for each problem.

The checks are independent and run in parallel, each in a thread with a time limit. They write only a small file below
the state and the sink, and remove it again. They show no value of an environment variable.
"""

import contextvars
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from overnight.flows.job.model import Job
from overnight.tasks.config.masking import masked

Level = Literal["ok", "warning", "wrong"]


@dataclass(frozen=True)
class Finding:
    """The result of a check. `what` names the checked thing, and `found` describes its state."""

    what: str
    level: Level
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", masked(self.found))
        object.__setattr__(self, "advice", masked(self.advice))

    @property
    def is_wrong(self) -> bool:
        return self.level == "wrong"

    def as_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A check. `what` names the checked thing, `look` returns its findings, and `seconds` is its time limit."""

    what: str
    look: Callable[[], Iterable[Finding]]
    seconds: float = 30.0


def examine(job: Job | None, job_path: Path | None) -> list[Finding]:
    """Run all checks, and return their findings in order. Without a job, check the server, Ray and the versions."""
    from overnight.flows.doctor.environment import check_environment, check_storage, check_versions
    from overnight.flows.doctor.job_file import check_code, check_libraries, check_models
    from overnight.flows.doctor.prefect_server import check_prefect
    from overnight.flows.doctor.ray_cluster import RAY_SECONDS, check_ray
    from overnight.flows.doctor.stores import check_stores

    checks = [
        Check("Prefect", lambda: check_prefect(job, job_path)),
        Check("Ray", lambda: check_ray(job), RAY_SECONDS + 10),
        Check("versions", check_versions),
    ]
    if job and job_path:
        checks += [
            Check("environment", lambda: check_environment(job_path)),
            Check("code", lambda: check_code(job, imports=False)),
            Check("models", lambda: check_models(job), 60),
            Check("libraries", lambda: check_libraries(job)),
            Check("storage", lambda: check_stores(job), 60),
            Check("storage", lambda: check_storage(job), 60),
            *_notify(job),
        ]
    return run_checks(checks)


def examine_job_file(job: Job, job_path: Path, network: bool = True) -> list[Finding]:
    """Check what the job file names, without writing, and return the findings in order.

    This imports the user's code in the main thread, because some modules need that.
    """
    from overnight.flows.doctor import job_file
    from overnight.flows.doctor.environment import check_address, check_environment, check_source

    findings = [
        *check_address(),
        *check_environment(job_path),
        *job_file.check_code(job),
        *job_file.check_models(job),
        *job_file.check_libraries(job),
    ]
    # without its variables or models, no run of the job can be described
    can_describe = not any(finding.is_wrong and finding.what in ("environment", "models") for finding in findings)
    if network and can_describe:
        findings += run_checks(
            [
                Check("source", lambda: check_source(job)),
                Check("columns", lambda: job_file.check_columns(job)),
                Check("sink", lambda: job_file.check_owner(job)),
                *_notify(job),
            ]
        )
    # Each text once: a missing module is a finding about the code and about the model.
    first: dict[str, Finding] = {}
    for finding in findings:
        first.setdefault(finding.found, finding)
    unique = list(first.values())
    # Only a job that can run has a next run, and Prefect's scheduler takes seconds to import.
    return unique if failed(unique) else [*unique, *job_file.check_budget(job), *job_file.check_schedule(job)]


def _notify(job: Job) -> list[Check]:
    """Return the check of the job's receivers, if it has any. The check imports Prefect."""
    if not job.receivers:
        return []
    from overnight.flows.doctor.notify import check_notify

    return [Check("notify", lambda: check_notify(job))]


def run_checks(checks: Iterable[Check]) -> list[Finding]:
    """Run checks in parallel, and return their findings in order."""
    start = time.monotonic()
    threads: list[tuple[Check, threading.Thread, list[Finding]]] = []
    for check in checks:
        findings: list[Finding] = []
        context = contextvars.copy_context()  # without it, the thread would use another Prefect server
        thread = threading.Thread(target=context.run, args=(_run, check, findings), name=check.what, daemon=True)
        thread.start()
        threads.append((check, thread, findings))
    result: list[Finding] = []
    for check, thread, findings in threads:
        thread.join(max(0.0, start + check.seconds - time.monotonic()))
        result += findings
        if thread.is_alive():
            sentence = f"no answer in {check.seconds:.0f} s"
            result.append(Finding(check.what, "wrong", sentence, "Check its load, and the network to it."))
    return result


def _run(check: Check, findings: list[Finding]) -> None:
    try:
        for finding in check.look():
            findings.append(finding)
    except Exception as error:
        findings.append(Finding(check.what, "wrong", f"{type(error).__name__}: {error}"))


def failed(findings: Iterable[Finding]) -> bool:
    return any(finding.is_wrong for finding in findings)


def counts(findings: Iterable[Finding]) -> Mapping[str, Any]:
    """Return the number of findings of each level, also if it is 0."""
    levels = [finding.level for finding in findings]
    return {level: levels.count(level) for level in ("ok", "warning", "wrong")}
