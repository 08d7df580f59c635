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
from overnight.flows.runs.ray_address import check_ray_address
from overnight.flows.runs.run import describe_run
from overnight.flows.schedule.partitions import resolve_partition
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
    """Compare the installed packages with the versions that Overnight is tested with.

    A missing package is `wrong`, and another version is a warning.
    """
    # Files beside it have the versions of extras and of PyTorch.
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
    advice = f"Install the tested versions: `pip install {' '.join(exact)}`."
    if missing:
        yield Finding("versions", "wrong", f"not installed: {', '.join(missing)}", advice)
    if differ:
        yield Finding("versions", "warning", f"differ from the tested versions: {', '.join(differ)}", advice)
    if not (missing or differ):
        yield Finding("versions", "ok", f"{', '.join(WATCHED)} have the tested versions")


def check_address() -> Iterator[Finding]:
    """Check that a run can use RAY_ADDRESS. There is no finding if it can."""
    try:
        check_ray_address()
    except OvernightError as error:
        yield Finding("Ray", "wrong", str(error))


def check_environment(job_path: Path) -> Iterator[Finding]:
    """Check that the environment variables that the job file names are set."""
    named = sorted(set(VARIABLE.findall(job_path.read_text(encoding="utf-8"))))
    missing = [name for name in named if name not in os.environ]
    if missing:
        found = f"{job_path} needs {', '.join(missing)}, not set here"
        yield Finding("environment", "wrong", found, "Set it here, for workers, and on the nodes of a cluster.")
    elif named:
        yield Finding("environment", "ok", f"{job_path} needs {', '.join(named)}, set here")
    else:
        yield Finding("environment", "ok", f"{job_path} needs no variables")


def check_storage(job: Job) -> Iterator[Finding]:
    """Check that the job's source can be listed, and that its state and sink can be written.

    If the sink is not a folder, check that its database answers. Skip a place whose environment variable is not set,
    because `check_environment` reports that variable.
    """
    yield from check_source(job)
    for what, path in (("sink", job.sink.place), ("state", job.state)):
        if path and _is_named(path):
            yield _writable(what, Location(path))
    if job.sink.place is None and _is_named(job.sink.model_dump_json()):
        yield _answering(job)


def check_source(job: Job) -> Iterator[Finding]:
    """Check that the job's source can be listed. Skip a place whose environment variable is not set."""
    written = getattr(job.source, "path", [])
    paths = [written] if isinstance(written, str) else written
    if paths and (job.is_dated or getattr(job.source, "wait_for", None)):
        yield from (_source(job, path) for path in paths if _is_named(path))
    elif all(map(_is_named, paths or [job.source.model_dump_json()])):
        yield _listed(job)


def _listed(job: Job) -> Finding:
    """List the first input. If the source has days, this is an input of the day that is due."""
    day = resolve_partition(job, None, None, datetime.now(UTC))
    try:
        if isinstance(job.source, JobRows) and (lacking := job.source.lacking(day)):
            return Finding("source", "warning", lacking, "Run that job first, or set source.wait_for.")
        first = next(iter(job.source.files(day)), None)
    except FileNotFoundError as error:
        return Finding("source", "wrong", str(error), "Correct source.path.")
    except Exception as error:
        return Finding("source", "wrong", _in_words(error), "Check source, and that its server runs.")
    if first is None and not (job.is_dated or job.source.allow_empty):
        told = f"expected inputs at {job.source.place(day)}, found none"
        return Finding("source", "wrong", told, "Check source, or set source.allow_empty: true.")
    if first is None:
        return Finding("source", "warning", f"no inputs for {day}", "Check source, or wait for the data.")
    return Finding("source", "ok", f"{job.source.place(day)} can be listed")


def _answering(job: Job) -> Finding:
    """Connect to a sink that is not a folder, by a search for rows of others in the partition that is due."""
    run = describe_run(job, resolve_partition(job, None, None, datetime.now(UTC)))
    try:
        job.sink.foreign(run, set())
    except Exception as error:
        return Finding("sink", "wrong", _in_words(error), "Check sink, and that its server runs.")
    return Finding("sink", "ok", f"{job.sink.shown(run)} answers")


def _is_named(path: str) -> bool:
    return all(name in os.environ for name in VARIABLE.findall(path))


def _source(job: Job, path: str) -> Finding:
    """List the deepest folder that all partitions of the source share, because a date may have no inputs yet."""
    folder, pattern = split(path)
    same, placeholder, _ = f"{folder}/".partition("{partition}") if pattern else path.partition("{partition}")
    anonymous = bool(getattr(job.source, "anonymous", False))
    place = Location(same.rpartition("/")[0] if placeholder else same, anonymous=anonymous)
    try:
        found = len(place.names())
    except Exception as error:
        return Finding("source", "wrong", _said(error, place), READING)
    if not found:
        return Finding("source", "warning", f"{place} is empty", "Check source.path, or wait for the data.")
    return Finding("source", "ok", f"{place} can be listed: {found} entries")


def _writable(what: str, place: Location) -> Finding:
    """Write, create, read and remove a small file in a folder of its own that readers ignore."""
    state = place / "_overnight"
    folder = state / f"_doctor-{uuid.uuid4().hex[:12]}"
    try:
        (place if what == "state" else state).make_private()
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
    """Return the problem of a file's storage as a sentence, or an empty string. Raise the storage's own errors."""
    content = uuid.uuid4().bytes
    file.create(content)
    try:
        file.create(uuid.uuid4().bytes)
    except FileExistsError:
        file.write_bytes(content)
        return "" if file.read_bytes() == content else f"{file}: the store returned other bytes than were written"
    return f"{file} was created twice: two runs could not exclude each other. Use a store with If-None-Match"


def _said(error: Exception, place: Location) -> str:
    return _in_words(error) if isinstance(error, OvernightError) else f"{place}: {_in_words(error)}"


def _in_words(error: Exception) -> str:
    """Return the message of a run for this error, without its sentence about publishing."""
    if isinstance(error, OvernightError):
        return str(error).partition(" Nothing was published")[0]
    return f"{type(error).__name__}: {error}"
