"""The checks of `overnight doctor` on this machine: packages, environment variables, and the job's storage."""

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
from overnight.flows.runs.local_ray import check_ray_address
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import resolve_partition
from overnight.tasks.config.partition_names import PLACEHOLDER
from overnight.tasks.errors import OvernightError
from overnight.tasks.ingest.kinds import JobRows
from overnight.tasks.storage.globs import split
from overnight.tasks.storage.location import Location

# In a checkout this is a link to the versions of the run time.
CONSTRAINTS = Path(__file__).parents[1] / "deploy/shipped/constraints.txt"
# A later version of these packages broke something before, or changes results.
WATCHED = ("prefect", "prefect-ray", "ray", "pyarrow", "torch", "transformers", "fastapi", "sqlalchemy")
WATCHED_EXTRAS = ("deltalake", "pyiceberg", "pylance")  # checked if they are installed
READING = "Check source.path, and that the job's user or credentials may list and read there."
WRITING = "Check that the job's user or credentials may list, read, write and remove there, and that space is left."
VARIABLE = re.compile(r"\$\{([^}]*)\}")


def check_versions() -> Iterator[Finding]:
    """Compare the installed packages with the versions that Overnight is tested with."""
    # Files beside it have the versions of extras and of PyTorch.
    locks = "".join(file.read_text() for file in sorted(CONSTRAINTS.parent.glob("constraints*.txt")))
    pins = re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;#]+)", locks, re.MULTILINE)
    versions = {re.sub(r"[-_.]+", "-", name).lower(): pin for name, pin in pins}
    differences, missing = [], []
    for name in (*WATCHED, *WATCHED_EXTRAS):
        try:
            installation = version(name).partition("+")[0]
        except PackageNotFoundError:
            if name in WATCHED:
                missing.append(name)
            continue
        if name in versions and installation != versions[name].partition("+")[0]:
            differences.append(f"{name} {installation} (tested: {versions[name]})")
    exact = [f"{name}=={versions[name]}" for name in (*WATCHED, *WATCHED_EXTRAS) if name in versions]
    advice = f"Install the tested versions: `pip install {' '.join(exact)}`."
    if missing:
        yield Finding("versions", "wrong", f"not installed: {', '.join(missing)}", advice)
    if differences:
        yield Finding("versions", "warning", f"differ from the tested versions: {', '.join(differences)}", advice)
    if not (missing or differences):
        yield Finding("versions", "ok", f"{', '.join(WATCHED)} have the tested versions")


def check_address() -> Iterator[Finding]:
    try:
        check_ray_address()
    except OvernightError as error:
        yield Finding("Ray", "wrong", str(error))


def check_environment(job_path: Path) -> Iterator[Finding]:
    names = set(VARIABLE.findall(job_path.read_text(encoding="utf-8")))
    missing = sorted(names - os.environ.keys())
    if missing:
        sentence = f"{job_path} needs {', '.join(missing)}, not set here"
        yield Finding("environment", "wrong", sentence, "Set it here, for workers, and on the nodes of a cluster.")
    elif names:
        yield Finding("environment", "ok", f"{job_path} needs {', '.join(sorted(names))}, set here")
    else:
        yield Finding("environment", "ok", f"{job_path} needs no variables")


def check_storage(job: Job) -> Iterator[Finding]:
    """Check that the job's source can be listed, and that its state and sink can be written or answer."""
    yield from check_source(job)
    for section, path in (("sink", job.sink.place), ("state", job.state)):
        if path and _has_variables(path):
            yield _writable(section, Location(path))
    if job.sink.place is None and _has_variables(job.sink.model_dump_json()):
        yield _answering(job)


def check_source(job: Job) -> Iterator[Finding]:
    """Check that the job's source can be listed. Skip a place whose environment variable is not set."""
    paths = getattr(job.source, "path", [])
    if isinstance(paths, str):
        paths = [paths]
    if paths and (job.is_dated or getattr(job.source, "wait_for", None)):
        for path in paths:
            if _has_variables(path):
                yield _folder(job, path)
    elif all(map(_has_variables, paths or [job.source.model_dump_json()])):
        yield _first_input(job)


def _has_variables(text: str) -> bool:
    return all(name in os.environ for name in VARIABLE.findall(text))


def _first_input(job: Job) -> Finding:
    """List the first input. If the source has days, this is an input of the day that is due."""
    day = resolve_partition(job, None, None, datetime.now(UTC))
    try:
        if isinstance(job.source, JobRows) and (missing := job.source.lacking(day)):
            return Finding("source", "warning", missing, "Run that job first, or set source.wait_for.")
        first = next(iter(job.source.files(day)), None)
    except FileNotFoundError as error:
        return Finding("source", "wrong", str(error), "Correct source.path.")
    except Exception as error:
        return Finding("source", "wrong", _in_words(error), "Check source, and that its server runs.")
    if first is not None:
        return Finding("source", "ok", f"{job.source.place(day)} can be listed")
    if job.is_dated or job.source.allow_empty:
        return Finding("source", "warning", f"no inputs for {day}", "Check source, or wait for the data.")
    sentence = f"expected inputs at {job.source.place(day)}, found none"
    return Finding("source", "wrong", sentence, "Check source, or set source.allow_empty: true.")


def _folder(job: Job, path: str) -> Finding:
    """List the deepest folder that all partitions of the source share, because a date may have no inputs yet."""
    folder, pattern = split(path)
    prefix, *placeholders = PLACEHOLDER.split(f"{folder}/" if pattern else path, maxsplit=1)
    anonymous = bool(getattr(job.source, "anonymous", False))
    location = Location(prefix.rpartition("/")[0] if placeholders else prefix, anonymous=anonymous)
    try:
        count = len(location.names())
    except Exception as error:
        return Finding("source", "wrong", _in_words(error, location), READING)
    if not count:
        return Finding("source", "warning", f"{location} is empty", "Check source.path, or wait for the data.")
    return Finding("source", "ok", f"{location} can be listed: {count} entries")


def _answering(job: Job) -> Finding:
    """Connect to a sink that is not a folder, by a search for rows of others in the partition that is due."""
    run = describe_run(job, resolve_partition(job, None, None, datetime.now(UTC)))
    try:
        job.sink.foreign(run, set())
    except Exception as error:
        return Finding("sink", "wrong", _in_words(error), "Check sink, and that its server runs.")
    return Finding("sink", "ok", f"{job.sink.shown(run)} answers")


def _writable(what: str, location: Location) -> Finding:
    """Write, create, read and remove a small file in a folder of its own that readers ignore."""
    state = location / "_overnight"
    folder = state / f"_doctor-{uuid.uuid4().hex[:12]}"
    try:
        (location if what == "state" else state).make_private()
        problem = _storage_problem(folder / "probe")
        folder.remove()
    except Exception as error:
        problem = _in_words(error, location)
        with contextlib.suppress(Exception):
            folder.remove()
    if problem:
        return Finding(what, "wrong", problem, WRITING)
    return Finding(what, "ok", f"{location} can be written, created once, read and removed")


def _storage_problem(file: Location) -> str:
    """Return the problem of a file's storage as a sentence, or an empty string. Raise the storage's own errors."""
    content = uuid.uuid4().bytes
    file.create(content)
    try:
        file.create(uuid.uuid4().bytes)
    except FileExistsError:
        file.write_bytes(content)
        return "" if file.read_bytes() == content else f"{file}: the store returned other bytes than were written"
    return f"{file} was created twice: two runs could not exclude each other. Use a store with If-None-Match"


def _in_words(error: Exception, location: Location | None = None) -> str:
    """Return the message of a run for this error, without its sentence about publishing."""
    if isinstance(error, OvernightError):
        return str(error).partition(" Nothing was published")[0]
    prefix = f"{location}: " if location else ""
    return f"{prefix}{type(error).__name__}: {error}"
