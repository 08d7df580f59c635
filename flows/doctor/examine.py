"""`overnight doctor`: is everything there that a run needs, and what to do where it is not.

The checks look at different things and run at once, each in a thread that is not waited for beyond its time. None
changes anything but a small file below the state and the sink, which it removes again. No value of a variable is told.
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
    """What was found about one thing, and what to do if it is not ok."""

    what: str
    level: Level
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "found", masked(self.found))
        object.__setattr__(self, "advice", masked(self.advice))

    def as_json(self) -> dict[str, str]:
        return asdict(self)


@dataclass(frozen=True)
class Check:
    """A look at one thing, which may take so many seconds."""

    what: str
    look: Callable[[], Iterable[Finding]]
    seconds: float = 30.0


def examine(job: Job | None, job_path: Path | None) -> list[Finding]:
    """All findings, in the order of the checks. Raises nothing: a check that fails is a finding."""
    from overnight.flows.doctor.environment import check_environment, check_storage, check_versions
    from overnight.flows.doctor.prefect_server import check_prefect
    from overnight.flows.doctor.ray_cluster import RAY_SECONDS, check_ray

    checks = [
        Check("Prefect", lambda: check_prefect(job, job_path)),
        Check("Ray", check_ray, RAY_SECONDS + 10),
        Check("versions", check_versions),
    ]
    if job and job_path:
        checks += [
            Check("environment", lambda: check_environment(job_path)),
            Check("storage", lambda: check_storage(job), 60),
        ]
    return run_checks(checks)


def run_checks(checks: Iterable[Check]) -> list[Finding]:
    """The findings of checks that run at once."""
    started = time.monotonic()
    running: list[tuple[Check, threading.Thread, list[Finding]]] = []
    for check in checks:
        findings: list[Finding] = []
        here = contextvars.copy_context()  # a thread has no context of its own, and with it another Prefect server
        thread = threading.Thread(target=here.run, args=(_run, check, findings), name=check.what, daemon=True)
        thread.start()
        running.append((check, thread, findings))
    found: list[Finding] = []
    for check, thread, findings in running:
        thread.join(max(0.0, started + check.seconds - time.monotonic()))
        found += findings
        if thread.is_alive():
            told = f"no answer in {check.seconds:.0f} s"
            found.append(Finding(check.what, "wrong", told, "See whether it is overloaded, or cut off from here."))
    return found


def _run(check: Check, findings: list[Finding]) -> None:
    try:
        for finding in check.look():
            findings.append(finding)
    except Exception as error:
        findings.append(Finding(check.what, "wrong", f"{type(error).__name__}: {error}"))


def failed(findings: Iterable[Finding]) -> bool:
    return any(finding.level == "wrong" for finding in findings)


def counts(findings: Iterable[Finding]) -> Mapping[str, Any]:
    """How many findings there are of each level."""
    levels = [finding.level for finding in findings]
    return {level: levels.count(level) for level in ("ok", "warning", "wrong")}
