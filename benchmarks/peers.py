"""Compare Overnight with its peers and with the machine's limits: `python benchmarks/peers.py --workload photos`.

Run it on an otherwise idle machine; it prints a Markdown table for each workload. All contenders run on the same files
in the same session, one after another in rounds (A B C, A B C). Each runs in a process of its own, with its start-up
included; a row is the median of its rounds. Only the ratios carry over to other machines. A row counts only if every
source row is there once and the results agree (`agreement.py`); otherwise the row names the problem. A contender that
lacks a library, Java or a setting is "not run". Install the contenders' libraries with

    make bench

Overnight runs as users run it, by `overnight run`. The Prefect server already runs, because it is a service: its CPU
seconds count, its memory does not. The first output is the first file with rows. Overnight's file is staged then, and
readers see it only after the checks and the publish. Steady rates are those of the models, between a fifth and nine
tenths of the rows. Each contender notes its own; Overnight's come from its progress in Prefect.
"""

import argparse
import contextlib
import functools
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import overnight_progress
from agreement import Disagreement, Judge
from measuring import Measured, measure
from workloads import WORKLOADS, System, Workload, make

CONTENDERS = Path(__file__).with_name("contenders")
HEAD = (
    "| system | rows/s | steady rows/s | ratio to {} | CPU s per 1,000 rows | peak memory, MB | first output, s "
    "| difference |"
)


def main() -> None:
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="overnight-peers-", dir=options.folder) as name, prefect(Path(name)) as api:
        everything = {}
        for workload in options.workload:
            rows = options.rows or WORKLOADS[workload].rows
            buckets = Path(name) / workload / "buckets"
            with s3_server(buckets) if workload.endswith("-s3") else contextlib.nullcontext():
                everything[workload] = compare(WORKLOADS[workload], rows, options, Path(name) / workload, api)
            print("\n" + table(WORKLOADS[workload], rows, everything[workload]), flush=True)
            if options.json:
                options.json.write_text(json.dumps(everything, indent=2))
    failed = [found for rows in everything.values() for found in rows if found["problem"] and not found["not_run"]]
    sys.exit(1 if failed else 0)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted({system.name for workload in WORKLOADS.values() for system in workload.systems})
    parser.add_argument("--workload", nargs="+", choices=list(WORKLOADS), default=["photos"])
    parser.add_argument("--rows", type=int, help="default: the workload's, which takes minutes per system")
    parser.add_argument("--repeat", type=int, default=1, help="rounds; default: 1")
    parser.add_argument("--systems", nargs="+", choices=names, help="default: all of the workload")
    parser.add_argument("--limit-seconds", type=float, default=3600, help="the limit of one run; default: 3600")
    parser.add_argument("--json", type=Path, help="a file for every figure of every run")
    parser.add_argument(
        "--folder", type=Path, help="the folder of data and results during the runs; default: the temporary folder"
    )
    return parser.parse_args()


def compare(workload: Workload, rows: int, options: argparse.Namespace, folder: Path, api: str) -> list[dict[str, Any]]:
    """Run the systems, and return the runs of each, with its problem or the reason that it did not run."""
    say(f"{workload.name}: making {rows:,} rows")
    make(workload, folder / "data", rows)
    judge = Judge(workload.name, folder / "data", rows, workload.tolerance)
    if any(system.result == "exact" for system in workload.systems):
        command = [str(CONTENDERS / "images_reference.py"), str(folder / "data"), str(folder / "reference")]
        subprocess.run([sys.executable, *command], check=True, env=environment())
        judge.reference = folder / "reference/reference.parquet"
    systems = [system for system in workload.systems if not options.systems or system.name in options.systems]
    found: dict[str, dict[str, Any]] = {
        system.name: {"name": system.name, "label": system.label, "runs": [], "problem": "", "not_run": False}
        for system in systems
    }
    for turn in range(options.repeat):
        for system in systems:
            if not found[system.name]["problem"]:
                out = folder / f"{system.name}-{turn}"
                run_once(system, rows, folder / "data", out, judge, found[system.name], options.limit_seconds, api)
    return list(found.values())


def run_once(
    system: System,
    rows: int,
    data: Path,
    out: Path,
    judge: Judge,
    found: dict[str, Any],
    limit_seconds: float,
    api: str,
) -> None:
    command = [sys.executable, str(CONTENDERS / f"{system.script}.py"), str(data), str(out), *system.arguments]
    follow = None
    if system.name.startswith("overnight"):
        job = "benchmark-" + system.script.partition("_")[0]
        follow = functools.partial(overnight_progress.follow, api, job, rows)
    run = measure(command, environment(), out, rows, limit_seconds, follow)
    if reason := not_run(run):
        found.update(problem=f"not run: {reason}", not_run=True)
    elif run.status:
        found["problem"] = f"failed with exit status {run.status}"
        print(run.error[-3000:], file=sys.stderr)
    else:
        try:
            difference = judge.difference(out, system.result)
            found["runs"].append(
                {**asdict(run), "error": "", "rows_per_second": rows / run.seconds, "difference": difference}
            )
        except Disagreement as problem:
            found["problem"] = f"wrong: {problem}"
    say(f"{system.name}: {found['problem'] or f'{rows / run.seconds:,.1f} rows/s in {run.seconds:,.1f} s'}")
    shutil.rmtree(out, ignore_errors=True)


def not_run(run: Measured) -> str:
    """Return the reason that a contender cannot run here, or an empty text if it ran, even if it failed."""
    lines = run.error.strip().splitlines()
    last = lines[-1] if run.status and lines else ""
    if last.startswith("not run: "):
        return last.removeprefix("not run: ")
    if last.startswith("ModuleNotFoundError: "):
        return last.removeprefix("ModuleNotFoundError: ")
    return ""


def table(workload: Workload, rows: int, found: Sequence[dict[str, Any]]) -> str:
    """Return the medians of the runs as a Markdown table."""
    base = next((entry for entry in found if entry["name"] == workload.baseline and entry["runs"]), None)
    base = base or next((entry for entry in found if entry["name"].startswith("overnight") and entry["runs"]), None)
    lines = [f"{workload.name}, {rows:,} rows, {os.cpu_count()} cores\n"]
    lines += [HEAD.format(base["label"] if base else "-"), "| --- |" + " ---: |" * 7]
    for entry in found:
        if entry["problem"]:
            lines.append(f"| {entry['label']} | {entry['problem']} |" + " |" * 6)
            continue
        rate, steady, difference = (
            median(entry, key) for key in ("rows_per_second", "steady_rows_per_second", "difference")
        )
        cells = [
            number(rate),
            number(steady),
            f"{rate / median(base, 'rows_per_second'):.2f}" if base else "-",
            f"{median(entry, 'cpu_seconds') * 1000 / rows:.3g}",
            f"{median(entry, 'peak_bytes') / 1e6:,.0f}",
            number(median(entry, "first_output_seconds")),
            "-" if difference is None else f"{difference:.2g}",
        ]
        lines.append(f"| {entry['label']} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def median(entry: dict[str, Any], key: str) -> float | None:
    values = [run[key] for run in entry["runs"] if run[key] is not None]
    return statistics.median(values) if values else None


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def environment() -> dict[str, str]:
    """Return this environment without a Ray or a Prefect API, and with the contenders' shared files importable."""
    kept = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", "PREFECT_API_URL")}
    paths = [str(CONTENDERS), str(CONTENDERS.parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**kept, "PYTHONPATH": os.pathsep.join(paths), "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


@contextlib.contextmanager
def prefect(folder: Path) -> Iterator[str]:
    """Start a Prefect server with a home of its own, as the first `overnight run` does, and yield its API's URL."""
    home = folder / "prefect"
    os.environ["PREFECT_HOME"] = str(home)
    starting = "from overnight.flows.runs.local_server import prefect_server\nwith prefect_server() as url: print(url)"
    place = environment()
    try:
        command = [sys.executable, "-c", starting]
        started = subprocess.run(command, env=place, check=True, stdout=subprocess.PIPE, text=True)
        yield started.stdout.strip()
    finally:
        subprocess.run([sys.executable, "-m", "prefect", "server", "stop"], env=place, check=False, capture_output=True)


@contextlib.contextmanager
def s3_server(buckets: Path) -> Iterator[None]:
    """Serve a folder's folders as S3 buckets, and name the server in the environment while the body runs.

    The server is rclone's, because it is written in Go and fast enough not to be the bottleneck.
    """
    buckets.mkdir(parents=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    added = {"AWS_ENDPOINT_URL": url, "AWS_DEFAULT_REGION": "us-east-1"}
    added |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    os.environ.update(added)
    command = ["rclone", "serve", "s3", "--config", "", "--auth-key", "test,test", "--addr", f"127.0.0.1:{port}"]
    command.append(str(buckets))
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            if server.poll() is not None:
                raise SystemExit("expected an rclone with `serve s3` on this PATH, found none. Run `make bench`.")
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(10)
        for name in added:
            os.environ.pop(name)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
