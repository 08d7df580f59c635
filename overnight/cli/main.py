"""The command line. Exit 0: what was asked is published; 1: it failed; 2: bad usage or job file."""

import contextlib
import gc
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from overnight.tasks.masking import masked
from overnight.tasks.workers import fork_server

# Before Prefect is imported: the terminal shows what a person asked for, the log is in the Prefect UI.
for handler in ("CONSOLE", "CONSOLE_FLOW_RUNS", "CONSOLE_TASK_RUNS"):
    os.environ.setdefault(f"PREFECT_LOGGING_HANDLERS_{handler}_LEVEL", "CRITICAL")

OBJECTS_BETWEEN_COLLECTIONS = 100_000  # Python's own is 700

job_argument = click.argument("job_path", metavar="JOB.yaml", type=click.Path(path_type=Path))
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout, all else on stderr.")
verbose_option = click.option(
    "-v", "--verbose", is_flag=True, help="Show the run's log too: what models and steps print, and whole tracebacks."
)

reason_option = click.option("--reason", metavar="T", default="", help="Why, for the receipt.")
settings_option = click.option(
    "--set", "settings", metavar="KEY=VALUE", multiple=True, help="Override a setting of the job file."
)


@contextlib.contextmanager
def told_in_words() -> Iterator[None]:
    """Ends the command on an error of ours, with a sentence: 2 for bad usage or a bad job file, else 1."""
    from overnight.tasks.errors import JobError, OvernightError

    try:
        yield
    except OvernightError as error:
        click.secho(str(error), fg="red", err=True)
        sys.exit(2 if isinstance(error, JobError) else 1)


def begin_imports() -> None:
    """Starts the process that imports what workers need, beside what this one imports; it ends with the command."""
    click.get_current_context().with_resource(fork_server.for_local_ray())


def show(found: Any, as_json: bool, in_words: Callable[[], None]) -> None:
    click.echo(json.dumps(found, indent=2, default=str)) if as_json else in_words()


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="overnight")
def main() -> None:
    """Offline batch inference that people trust to run while they sleep."""
    # Of four seconds that imports and the end of this process take, one goes to garbage that is looked for in them.
    gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
    click.get_current_context().call_on_close(gc.freeze)


@main.command()
@job_argument
@click.option("--partition", metavar="D", help="YYYY-MM-DD; default: yesterday in the job's time zone.")
@click.option("--force", is_flag=True, help="Run again although the partition is published.")
@reason_option
@click.option(
    "--limit-rows",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="A sample, published to a scratch place.",
)
@settings_option
@verbose_option
@json_option
def run(
    job_path: Path,
    partition: str | None,
    force: bool,
    reason: str,
    limit_rows: int | None,
    settings: tuple[str, ...],
    verbose: bool,
    as_json: bool,
) -> None:
    """Run one partition of a job and publish it."""
    begin_imports()
    from overnight.flows.job.model import load_job
    from overnight.flows.schedule.partitions import resolve_partition
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    with told_in_words():
        job = load_job(job_path, settings)
        day = resolve_partition(job, partition, None, datetime.now(UTC))
    fork_server.preload(imports(job.inference))
    from overnight.cli.local_run import run_here
    from overnight.flows.runs.attempt import describe_failure

    try:
        with contextlib.redirect_stdout(sys.stderr):  # Ray prints there what its nodes report
            receipt = run_here(job_path, job, day, force, masked(reason), limit_rows or 0, settings, verbose)
    except OvernightError as error:
        failure = describe_failure(job.name, day, error)
        if as_json:
            click.echo(json.dumps(failure, indent=2))
        click.secho(f"{error.status}: {job.name}/{day} in {error.stage}: {error}", fg="red", err=True)
        sys.exit(1)
    from overnight.cli.progress_bars import show_receipt

    show(receipt, as_json, lambda: show_receipt(receipt, job))


@main.command()
@job_argument
@click.option("--start", metavar="D", help="The first day, as YYYY-MM-DD.")
@click.option("--end", metavar="D", help="The last day, included.")
@click.option(
    "--select",
    type=click.Choice(["missing", "failed", "stale", "all"]),
    multiple=True,
    default=["missing", "failed"],
    show_default=True,
    help="Which partitions run; may be given several times.",
)
@click.option("--order", type=click.Choice(["newest", "oldest"]), default="oldest", show_default=True)
@click.option("--max-concurrent", metavar="N", type=click.IntRange(min=1), default=1, show_default=True)
@click.option("--stop-on-failure", is_flag=True, help="Begin no other partition once one has failed.")
@click.option("--dry-run", is_flag=True, help="Say what would run, why, and how long it would take.")
@reason_option
@settings_option
@click.option("--resume", metavar="ID", default="", help="Run what an earlier backfill has not done.")
@verbose_option
@json_option
def backfill(job_path: Path, start: str | None, end: str | None, dry_run: bool, as_json: bool, **options: Any) -> None:
    """Run the partitions of a range of dates that are missing, failed or stale."""
    if not dry_run:
        begin_imports()
    from overnight.flows.backfill_plan import entries_of, nothing_to_do, planned
    from overnight.flows.schedule.partitions import parse_day
    from overnight.tasks.errors import OvernightError
    from overnight.tasks.infer.kinds import imports

    resume = options["resume"]
    chosen = {name: options[name] for name in ("select", "order", "settings")} | {"reason": masked(options["reason"])}
    with told_in_words():
        first, last = (parse_day(day) if day else None for day in (start, end))
        job, request, steps = planned(job_path, resume or "new", first, last, **chosen, is_resumed=bool(resume))
    from overnight.cli.progress_bars import show_outcomes, show_steps

    if not steps:
        show([], as_json, lambda: click.echo(nothing_to_do(job, request)))
        return
    if dry_run:
        show([step.as_json() for step in steps], as_json, lambda: show_steps(job, steps))
        return
    failure = None
    fork_server.preload(imports(job.inference))
    from overnight.cli.local_run import backfill_here

    with contextlib.redirect_stdout(sys.stderr):  # Ray prints there what its nodes report
        try:
            backfill_here(job_path, job, start=first, end=last, **options)
        except OvernightError as error:
            failure = error
    entries = entries_of(job, request, steps)
    show([entry.as_json() for entry in entries], as_json, lambda: show_outcomes(job, entries))
    if failure:
        click.secho(f"{failure.status}: {failure}", fg="red", err=True)
        sys.exit(1)


@main.command()
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@click.option("--schema", is_flag=True, help="Print the JSON schema of job files, for editors.")
def validate(job_path: Path | None, schema: bool) -> None:
    """Check a job file without running it."""
    from overnight.flows.job.model import job_schema, load_job

    if schema:
        click.echo(json.dumps(job_schema(), indent=2))
        return
    if job_path is None:
        raise click.UsageError("expected JOB.yaml or --schema")
    with told_in_words():
        job = load_job(job_path)
    click.echo(f"{job_path}: job {job.name!r} is valid")


@main.command()
@click.argument("folder", metavar="[DIR]", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option("--path", metavar="P", help="Where the inputs are: a folder or a URI; {partition} stands for the day.")
@click.option("--source", metavar="KIND", help="What they are; default: what the first file there is.")
@click.option("--work", metavar="KIND", help="What is done with each row: the kind of a model, python, or none.")
@click.option("--model", metavar="M", help="A hub name or a folder; default: a usual one for the work.")
@click.option("--text-column", metavar="C", help="The column with the text, where the work is on texts.")
@click.option("--name", metavar="N", help="The job's name; default: the folder's.")
def init(folder: Path, **given: str | None) -> None:
    """Begin a job: writes a job file, and a model to fill in where you bring your own. Asks for what is not given."""
    from overnight.cli import init_templates
    from overnight.cli.init_prompts import answered

    with told_in_words():
        answers = answered(folder, given)
        files = init_templates.create(answers)
    for file in files:
        click.echo(f"wrote {file}")
    click.echo("Next:\n  " + "\n  ".join(init_templates.next_commands(answers, files)))


@main.command()
@click.argument("job_paths", metavar="JOB.yaml...", nargs=-1, required=True, type=click.Path(path_type=Path))
def serve(job_paths: tuple[Path, ...]) -> None:
    """Run jobs on their schedules from this process, with a form in the Prefect UI, until interrupted."""
    from overnight.flows.deploy.apply import serve as serve_jobs
    from overnight.flows.deploy.prefect_yaml import deployable
    from overnight.flows.runs.local_server import prefect_server, ui_address

    with told_in_words():
        for path in job_paths:
            deployable(path)  # what is refused needs no server
    with told_in_words(), prefect_server() as url:
        click.echo(f"Prefect UI: {ui_address(url)}/deployments", err=True)
        serve_jobs(job_paths)


@main.command()
@click.argument("job_paths", metavar="[JOB.yaml]...", nargs=-1, type=click.Path(path_type=Path))
@json_option
def deploy(job_paths: tuple[Path, ...], as_json: bool) -> None:
    """Deploy jobs to the Prefect server and say what changed; without jobs, apply deployments/prefect.yaml.

    A worker runs the jobs in the folder where you call this. Automations start runs again whose process died.
    """
    from overnight.flows.deploy.apply import deploy as deploy_all
    from overnight.flows.deploy.prefect_yaml import PrefectFile
    from overnight.flows.runs.local_server import prefect_server, ui_address

    with told_in_words():
        PrefectFile(job_paths=job_paths)  # what is refused needs no server
    with told_in_words(), prefect_server() as url:
        click.echo(f"Prefect UI: {ui_address(url)}/deployments", err=True)
        changes = deploy_all(job_paths=job_paths)
    show([change.as_json() for change in changes], as_json, lambda: click.echo("\n".join(map(str, changes))))


@main.command()
@click.argument("job_path", metavar="[JOB.yaml]", type=click.Path(path_type=Path), required=False)
@json_option
def doctor(job_path: Path | None, as_json: bool) -> None:
    """Look at all that a run needs, and say what to do: server, worker, queues, Ray, GPU, versions, storage."""
    from overnight.flows.job.model import load_job

    os.environ.setdefault("OVERNIGHT_STORAGE_RETRY_SECONDS", "5")  # seconds: a person waits
    with told_in_words():
        job = load_job(job_path) if job_path else None
    from overnight.cli.progress_bars import show_findings
    from overnight.flows.doctor.examine import examine, failed

    findings = examine(job, job_path)
    show([finding.as_json() for finding in findings], as_json, lambda: show_findings(findings))
    sys.stdout.flush()
    os._exit(1 if failed(findings) else 0)  # a look that still waits for an answer keeps nobody waiting


@main.command()
@job_argument
@click.option("--start", metavar="D", type=click.DateTime(["%Y-%m-%d"]), help="Default: the first that was ever run.")
@click.option("--end", metavar="D", type=click.DateTime(["%Y-%m-%d"]), help="Default: the last that is due.")
@click.option("--inputs", is_flag=True, help="Also look whether the inputs changed, which lists them all.")
@json_option
def status(job_path: Path, start: datetime | None, end: datetime | None, inputs: bool, as_json: bool) -> None:
    """Show every partition: published, missing, failed, stale or running."""
    from overnight.cli.status import input_progress, show_status
    from overnight.flows.job.model import load_job
    from overnight.flows.ledger.partition_status import read_ledger

    with told_in_words(), input_progress() as tell:
        job = load_job(job_path)
        entries = read_ledger(job, start and start.date(), end and end.date(), inputs, tell)
    show([entry.as_json() for entry in entries], as_json, lambda: show_status(job.name, entries))


@main.command()
@job_argument
@click.option("--image", metavar="F", help="An image file to search with: a path or a URI.")
@click.option("--text", metavar="T", help="A text to search with.")
@click.option("-n", "count", metavar="N", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--model", metavar="NAME", help="Which embedding model, where the job has several.")
@click.option("--partition", metavar="D", help="One partition; default: all that are published.")
@click.option("--sheet", metavar="FILE.png", help="Write a picture of the query and the matches there.")
@click.option("--exact", is_flag=True, help="Compare with every row, although the table has an index.")
@json_option
def search(job_path: Path, as_json: bool, **question: Any) -> None:
    """Find published rows whose embedding is most like that of an image or a text."""
    from overnight.flows.job.model import load_job

    with told_in_words():
        from overnight.flows.similarity_search import checked

        checked(load_job(job_path), *(question[name] for name in ("image", "text", "model", "sheet")))
        from overnight.cli.local_run import search_here

        found = search_here(job_path, **question)
    from overnight.cli.progress_bars import show_matches

    show(found, as_json, lambda: show_matches(found))


@main.command()
@job_argument
@click.option("--keep-receipts", metavar="N", type=click.IntRange(min=1), default=30, show_default=True)
@click.option(
    "--older-than",
    metavar="DAYS",
    type=click.IntRange(min=0),
    default=None,
    help="Also staged work that a run could resume, if nothing was tried for so long.",
)
@click.option("--yes", is_flag=True, help="Remove it. Without, only show what would be removed.")
@json_option
def clean(job_path: Path, keep_receipts: int, older_than: int | None, yes: bool, as_json: bool) -> None:
    """Remove old generations and receipts, orphaned staging and samples; never what a run or a reader needs."""
    from overnight.flows.job.model import load_job

    with told_in_words():
        job = load_job(job_path)
        from overnight.flows.ledger.garbage_collection import clean as clean_job

        report = clean_job(job, keep_receipts, older_than, yes)
    from overnight.cli.progress_bars import show_cleaning

    show(report, as_json, lambda: show_cleaning(report))
