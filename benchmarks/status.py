"""Measure `overnight status` on S3: `python benchmarks/status.py [--partitions 1000] [--latency-ms 20]`.

It writes the ledgers of a job to an S3 server on this machine. The server is moto, which answers `--latency-ms` late,
like a distant store. Most partitions are published, with the files of their runs; some were replaced several times,
failed or died. It measures the whole command with its start-up. For a tenth of the partitions it also measures a plain
loop: a listing and a read of the receipt, the failure and the lease, one after another. Seconds are wall and CPU time.
"""

import argparse
import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job
from overnight.flows.runs.run import describe_run
from overnight.tasks.state.manifest import begin_manifest
from overnight.tasks.state.run import FORMAT_VERSION, Run
from overnight.tasks.storage.location import Location

BUCKET = "benchmark"
STAGES = ("ingest", "shuffle", "preprocess", "infer", "write")


def job_file(folder: Path) -> Path:
    job = {
        "name": "many",
        "source": {"kind": "parquet", "path": f"s3://{BUCKET}/raw/date={{partition}}/"},
        "preprocess": [{"kind": "filter_rows", "expression": "x % 10 != 3"}],
        "sink": {"kind": "parquet", "path": f"s3://{BUCKET}/out"},
    }
    path = folder / "many.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def make(job: Job, count: int) -> int:
    """Write the ledgers of the newest `count` partitions, and return the number of objects."""
    filesystem, state = describe_run(job, "all").state.open_filesystem()
    with tempfile.TemporaryDirectory() as folder:
        units = job.source.units([])
        with begin_manifest(Location(f"{folder}/manifest")) as manifest:
            manifest.add(units)
            manifest.finish("digest", None)
        manifest = Path(folder, "manifest").read_bytes()
    run = describe_run(job, "all")
    last = datetime.now(UTC).date() - timedelta(1)
    objects: dict[str, bytes] = {}
    for number in range(count):
        day = (last - timedelta(number)).isoformat()
        for path, content in ledger(replace(run, partition=day), number, manifest).items():
            objects[f"{state}/date={day}/{path}"] = content
    filesystem.pipe(objects)
    return len(objects)


def ledger(run: Run, number: int, manifest: bytes) -> dict[str, bytes]:
    """Return the files of a partition's ledger. `number` decides if it has one run, several, a failed or a dead one."""
    is_lost, is_failed, runs = number % 50 == 7, number % 50 == 9, 4 if number % 10 == 3 else 1
    files: dict[str, bytes] = {}
    for token in range(1, runs + 1):
        generation = f"2026010{token}T020000-{run.fingerprint[:6]}-abcdef"
        attempt = f"2026010{token}T020000-abcdef"
        home = f"generations/{generation}"
        record = {"fingerprint": run.fingerprint, "format_version": FORMAT_VERSION, "created_at": run.started_at}
        files |= {
            f"{home}/generation.json": json.dumps(record).encode(),
            f"{home}/manifest": manifest,
            f"{home}/attempts/{attempt}/order": bytes(4000),
            f"{home}/attempts/{attempt}/sample": bytes(4000),
        }
        if is_lost or is_failed:
            break
        receipt = json.dumps(published(run, generation, attempt, token)).encode()
        files |= {f"receipts/{generation}.json": receipt, f"{home}/quarantine": bytes(2000), "receipt.json": receipt}
    if is_failed:
        failure = {"stage": "infer", "error_type": "WorkerLost", "error_message": "the node died", "attempt": attempt}
        files["failure.json"] = json.dumps(
            {**failure, "job": run.job, "partition": run.partition, "status": "failed", "failed_at": run.started_at}
        ).encode()
    elif not is_lost:
        files[f"quarantine/quarantine-{generation}.parquet"] = bytes(2000)
    lease = {"owner": attempt, "flow_run": "", "released": not is_lost, "renewed": 0, "host": "gone", "pid": 1}
    return files | {f"lease/{token:08d}": json.dumps(lease | {"started": "1"}).encode()}


def published(run: Run, generation: str, attempt: str, token: int) -> dict[str, Any]:
    counts = {"rows_in": 10_000, "rows_out": 8_990, "rows_filtered": 1_000, "rows_quarantined": 10, "rows_resumed": 0}
    names = [f"{run.partition_directory}/part-{generation}-abcdef-{i:05d}.parquet" for i in range(4)]
    return {
        **{"job": run.job, "partition": run.partition, "generation": generation, "status": "published", **counts},
        **{"started_at": run.started_at, "finished_at": run.started_at, "seconds": 61.5, "rows_per_second": 162.6},
        "stages": {stage: {"seconds": 12.3, "rows": 10_000, "bytes": 123_456} for stage in STAGES},
        "files": names,
        **{"versions": dict.fromkeys(("python", "ray", "prefect", "torch", "pyarrow", "commit"), "1.2.3")},
        **{"attempt": attempt, "token": token, "fingerprint": run.fingerprint, "ingredients": run.ingredients},
        **{"format_version": FORMAT_VERSION, "inputs": "digest", "settings": run.ingredients["settings"]},
        "columns": {f"column_{i}": {"nulls": 0, "mean": 1.5, "deviation": 0.5} for i in range(8)},
    }


def one_after_another(job: Job, count: int) -> None:
    """Read this number of partitions one after another, as a script without the ledger would."""
    state = describe_run(job, "all").state
    for name in state.names()[:count]:
        place = state / name
        for file in {"receipt.json", "failure.json"} & set(place.names()):
            (place / file).read_bytes()
        (place / "lease" / max((place / "lease").names())).read_bytes()


def serve(port: int, latency_seconds: float, log: Path) -> None:
    """Serve moto with a delay, and write a line to `log` for each request."""
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    moto = DomainDispatcherApplication(create_backend_app)
    with log.open("a", buffering=1) as lines:

        def late(environ: dict[str, Any], start_response: Any) -> Any:
            is_listing = "list-type=2" in environ["QUERY_STRING"]
            lines.write("listings\n" if is_listing else f"{environ['REQUEST_METHOD']}\n")
            time.sleep(latency_seconds)
            return moto(environ, start_response)

        make_server("127.0.0.1", port, late, threaded=True).serve_forever()


@contextlib.contextmanager
def server(latency_ms: float, log: Path) -> Iterator[None]:
    """Start the S3 server, and set the environment variables that name it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", **keys)
    arguments = ["--serve", str(port), "--latency-ms", str(latency_ms), "--log", str(log)]
    process = subprocess.Popen([sys.executable, __file__, *arguments], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(10)


def measured(name: str, command: list[str], log: Path) -> None:
    """Print a line of the table: a command's seconds and its requests."""
    log.write_text("")
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    seconds, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in sorted(Counter(log.read_text().split()).items()))
    print(f"{name:28}{seconds:9.1f}{cpu:9.1f}   {kinds}")
    if done.stdout.startswith(b"["):
        found = Counter(entry["status"] for entry in json.loads(done.stdout))
        print(f"{'':28}{', '.join(f'{count} {status}' for status, count in sorted(found.items()))}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--latency-ms", type=float, default=20)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--log", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--read", metavar="JOB", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.latency_ms / 1000, options.log)
        return
    if options.read:
        one_after_another(load_job(options.read), options.partitions)
        return
    with tempfile.TemporaryDirectory(prefix="status-") as temporary:
        folder = Path(temporary)
        path, log = job_file(folder), folder / "requests"
        with server(options.latency_ms, log):
            import s3fs

            s3fs.S3FileSystem().mkdir(BUCKET)
            count = make(load_job(path), options.partitions)
            print(f"{options.partitions:,} partitions, {count:,} objects, {options.latency_ms:g} ms delay each")
            print(f"{'':28}{'seconds':>9}{'CPU s':>9}   requests")
            command = [
                sys.executable,
                "-c",
                "from overnight.cli.main import main; main()",
                "status",
                str(path),
                "--json",
            ]
            measured("overnight status --json", command, log)
            measured("of it, starting", [sys.executable, "-c", "import overnight.flows.ledger.partition_status"], log)
            tenth = str(options.partitions // 10)
            command = [sys.executable, __file__, "--read", str(path), "--partitions", tenth]
            measured(f"one after another, {tenth}", command, log)


if __name__ == "__main__":
    main()
