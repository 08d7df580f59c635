"""Kill a job of paid requests, run it again, and count what is paid twice: `python benchmarks/paid_twice.py`.

200 rows go to an endpoint of this script (`paid_endpoint.py`): one row always fails, twenty are refused once with the
status 429. When half of the answers are charged, all processes of the job die by SIGKILL. With batches they die when
the provider has made the batch and its id has not reached them. Then the same command runs again, until it ends well.

Each contender has an environment of its own, FOLDER/NAME, and is left out without one. To make them:

    python -m venv FOLDER/daft && FOLDER/daft/bin/pip install 'daft[ray,deltalake,iceberg]' openai
    python -m venv FOLDER/ray && FOLDER/ray/bin/pip install 'ray[data]==2.60.0' aiohttp
    python -m venv FOLDER/datatrove && FOLDER/datatrove/bin/pip install 'datatrove[io]' aiofiles aiosqlite httpx openai
    python -m venv FOLDER/curator && FOLDER/curator/bin/pip install bespokelabs-curator

Overnight runs from the environment of this script.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet
from paid_endpoint import BAD, batch_endpoint, charged_by, online_endpoint, text_of

ROWS, FILES = 200, 10
CONTENDERS = Path(__file__).with_name("contenders")
RUNS = ("overnight", "overnight batch", "curator", "curator batch", "datatrove", "daft", "daft native", "ray")
TRIES = 3
MARK = "OVERNIGHT_BENCHMARK"
HEAD = "| system | rows answered | not answered | paid twice | runs after the kill | by default, the failing row |"


@dataclass
class Contender:
    """One contender in its folder; `kill` ends all its processes immediately."""

    name: str
    mode: str
    python: str
    folder: Path
    limit_seconds: float

    def run(self, url: str) -> int:
        """Run it once, and return its exit status; 124 if it has not ended in time."""
        environment = {**os.environ, MARK: str(self.folder), "PREFECT_HOME": str(self.folder.parent / "prefect")}
        command = [self.python, str(CONTENDERS / f"paid_{self.name}.py"), str(self.folder), url, self.mode]
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            return process.wait(self.limit_seconds)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            self.kill()

    def kill(self) -> None:
        """End every process that this contender started, also one whose parent has died."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder):
                    process.send_signal(signal.SIGKILL)


def write_rows(folder: Path, count: int) -> None:
    """Write the rows as JSON Lines and as Parquet, in ten files each."""
    (folder / "rows").mkdir(parents=True)
    for number in range(FILES):
        rows = [{"id": row, "text": text_of(row)} for row in range(count)[number::FILES]]
        lines = [json.dumps(row) + "\n" for row in rows]
        (folder / "rows" / f"{number}.jsonl").write_text("".join(lines))
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), folder / "rows" / f"{number}.parquet")


def killed_once(contender: Contender) -> dict[str, Any]:
    """Run a contender, kill it at its moment, and run it again until it ends well."""
    write_rows(contender.folder, ROWS)
    moment = threading.Event()

    def kill() -> None:
        moment.set()
        contender.kill()

    serve: Callable[..., Any] = batch_endpoint if contender.mode == "batch" else online_endpoint
    arguments = (kill,) if contender.mode == "batch" else (kill, ROWS // 2)
    statuses: list[int] = []
    with serve(*arguments) as endpoint:
        for _ in range(TRIES):
            if not moment.is_set():  # a busy machine may end a run before its moment
                contender.run(endpoint.url)
        while not statuses or (statuses[-1] and len(statuses) < TRIES):
            statuses.append(contender.run(endpoint.url))
        charged = charged_by(endpoint)
    answered = contender.folder / "answered.json"
    rows = json.loads(answered.read_text()) if answered.exists() else []
    repeated = charged.total() - len(charged)
    return {
        "killed": moment.is_set(),
        "statuses": statuses,
        "answered": len(set(rows)),
        "doubled": len(rows) - len(set(rows)),
        "without": ROWS - 1 - len(set(rows) - {BAD}),
        "repeated": repeated,
    }


def with_defaults(contender: Contender) -> str:
    """Return what the failing row does to a job without settings for failing rows."""
    write_rows(contender.folder, ROWS)
    with online_endpoint(contender.kill, 0) as endpoint:
        endpoint.busy.clear()
        status = contender.run(endpoint.url)
    return "the others are published" if status == 0 else "ends the job"


def line(name: str, result: dict[str, Any]) -> str:
    runs = len(result["statuses"])
    ended = str(runs) if result["statuses"][-1] == 0 else f"{runs}, none ended well"
    cells = [name, result["answered"], result["without"], result["repeated"], ended, result["default"]]
    return f"| {' | '.join(str(cell) for cell in cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, help="FOLDER: the environments of the contenders")
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=RUNS)
    parser.add_argument("--folder", help="where rows, outputs and logs are; default: a temporary one")
    parser.add_argument("--limit-seconds", type=float, default=600.0, help="of each run of a contender")
    options = parser.parse_args()
    lines = []
    with contextlib.ExitStack() as stack:
        base = Path(options.folder or stack.enter_context(tempfile.TemporaryDirectory(prefix="overnight-paid-")))
        for run in options.runs:
            name, _, mode = run.partition(" ")
            python = sys.executable if name == "overnight" else f"{options.environments}/{name}/bin/python"
            if not Path(python).exists():
                print(f"{run}: not run, no {python}", file=sys.stderr)
                continue
            place = base / run.replace(" ", "-")
            result = killed_once(Contender(name, mode or "online", python, place, options.limit_seconds))
            default = Contender(name, "default", python, base / f"{name}-default", options.limit_seconds)
            result["default"] = "" if mode else with_defaults(default)
            print(json.dumps({"run": run, **result}), file=sys.stderr, flush=True)
            lines.append(line(run, result))
    print("\n".join([HEAD, "| --- | ---: | ---: | ---: | ---: | --- |", *lines]))


if __name__ == "__main__":
    main()
