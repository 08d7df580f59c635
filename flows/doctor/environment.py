"""What `overnight doctor` looks at where it runs: packages, environment variables, and the job's storage."""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from overnight.flows.doctor.examine import Finding
from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import resolve_partition
from overnight.tasks.errors import OvernightError
from overnight.tasks.storage.location import Location

CONSTRAINTS = (
    Path(__file__).parents[1] / "deploy/shipped/constraints.txt"
)  # in a checkout a link to the lock of the run time
# Those whose next version has broken something before, or decides results.
WATCHED = ("prefect", "prefect-ray", "ray", "pyarrow", "torch", "transformers", "fastapi", "sqlalchemy")
WATCHED_EXTRAS = ("deltalake", "pyiceberg", "pylance")  # compared where they are installed
READING = "See source.path, and whether the job's user or credentials may list and read there."
WRITING = "The job's user or credentials must list, read, write and remove there, and there must be room."
VARIABLE = re.compile(r"\$\{([^}]*)\}")


def check_versions() -> Iterator[Finding]:
    """Installed packages against the versions that Overnight is tested with."""
    # Those of extras and of PyTorch lie beside it.
    locks = "".join(file.read_text() for file in sorted(CONSTRAINTS.parent.glob("constraints*.txt")))
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", locks, re.MULTILINE))
    tested = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, pin in pins.items()}
    differ, missing = [], []
    for name in (*WATCHED, *WATCHED_EXTRAS):
        try:
            installed = version(name).partition("+")[0]
        except PackageNotFoundError:
            missing += [name] if name in WATCHED else []
            continue
        if name in tested and installed != tested[name].partition("+")[0]:
            differ.append(f"{name} {installed} (tested: {tested[name]})")
    exact = [f"{name}=={tested[name]}" for name in (*WATCHED, *WATCHED_EXTRAS) if name in tested]
    advice = f"Install the versions that are tested: `pip install {' '.join(exact)}`."
    if missing:
        yield Finding("versions", "wrong", f"not installed: {', '.join(missing)}", advice)
    if differ:
        yield Finding("versions", "warning", f"other than tested: {', '.join(differ)}", advice)
    if not (missing or differ):
        yield Finding("versions", "ok", f"{', '.join(WATCHED)} are those that are tested")


def check_environment(job_path: Path) -> Iterator[Finding]:
    """The variables that the job file names."""
    named = sorted(set(VARIABLE.findall(job_path.read_text(encoding="utf-8"))))
    missing = [name for name in named if name not in os.environ]
    if missing:
        found = f"{', '.join(missing)} not set here, named in {job_path}"
        yield Finding("environment", "wrong", found, "Set it here, for workers and on the nodes of a cluster.")
    elif named:
        yield Finding("environment", "ok", f"{', '.join(named)} set, as {job_path} asks")
    else:
        yield Finding("environment", "ok", f"{job_path} names no variables")


def check_storage(job: Job) -> Iterator[Finding]:
    """Whether the job's source can be listed, and its state and sink written; of a sink that is no directory, whether
    its database answers. `check_environment` tells of places that have no name without a variable.
    """
    path = getattr(job.source, "path", "")
    if path and _is_named(path):
        yield _source(job, path)
    elif not path and _is_named(job.source.model_dump_json()):
        yield _listed(job)
    for what, path in (("sink", job.sink.place), ("state", job.state)):
        if path and _is_named(path):
            yield _writable(what, Location(path))
    if job.sink.place is None and _is_named(job.sink.model_dump_json()):
        yield _answering(job)


def _listed(job: Job) -> Finding:
    """A source that is no directory, asked for the first of what it has on the day that is due."""
    day = resolve_partition(job, None, None, datetime.now(UTC))
    try:
        first = next(iter(job.source.files(day)), None)
    except Exception as error:
        return Finding("source", "wrong", _in_words(error), "See source, and whether its server is there.")
    if first is None:
        return Finding("source", "warning", f"nothing for {day}", "See source, or wait for the data.")
    return Finding("source", "ok", f"{job.source.place(day)} can be listed")


def _answering(job: Job) -> Finding:
    """A sink that is no directory, asked whether anybody else's rows are in the place of the day that is due."""
    run = describe_run(job, resolve_partition(job, None, None, datetime.now(UTC)))
    try:
        job.sink.foreign(run, set())
    except Exception as error:
        return Finding("sink", "wrong", _in_words(error), "See sink, and whether its server is there.")
    return Finding("sink", "ok", f"{job.sink.shown(run)} answers")


def _is_named(path: str) -> bool:
    return all(name in os.environ for name in VARIABLE.findall(path))


def _source(job: Job, path: str) -> Finding:
    """As far up as the path is the same for every partition: a date may have nothing yet."""
    same, placeholder, _ = path.partition("{partition}")
    anonymous = bool(getattr(job.source, "anonymous", False))
    place = Location(same.rpartition("/")[0] if placeholder else same, anonymous=anonymous)
    try:
        found = len(place.names())
    except Exception as error:
        return Finding("source", "wrong", _said(error, place), READING)
    if not found:
        return Finding("source", "warning", f"nothing in {place}", "See source.path, or wait for the data.")
    return Finding("source", "ok", f"{place} can be listed: {found} entries")


def _writable(what: str, place: Location) -> Finding:
    """Writes, creates, reads and removes a small file in a folder of its own, which no reader sees."""
    folder = place / f"_overnight/_doctor-{uuid.uuid4().hex[:12]}"
    try:
        told = _tried(folder / "probe")
        folder.remove()
    except Exception as error:
        told = _said(error, place)
        with contextlib.suppress(Exception):
            folder.remove()
    if told:
        return Finding(what, "wrong", told, WRITING)
    return Finding(what, "ok", f"{place} can be written, created once, read and removed")


def _tried(file: Location) -> str:
    """What is wrong about the place of a file, where it raises nothing."""
    content = uuid.uuid4().bytes
    file.create(content)
    try:
        file.create(uuid.uuid4().bytes)
    except FileExistsError:
        file.write_bytes(content)
        return "" if file.read_bytes() == content else f"{file} gave back other bytes than were written"
    return f"{file} was created twice: two runs would not know of each other. Use a store with If-None-Match"


def _said(error: Exception, place: Location) -> str:
    return _in_words(error) if isinstance(error, OvernightError) else f"{place}: {_in_words(error)}"


def _in_words(error: Exception) -> str:
    """As a run says it, without what that says about publishing."""
    if isinstance(error, OvernightError):
        return str(error).partition(" Nothing was published")[0]
    return f"{type(error).__name__}: {error}"
