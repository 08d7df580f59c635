"""`make demo`: make the data, train the model, run the two jobs, and print the places of all results.

All its files are below .demo/, including the state of Prefect and Ray. You can run it again: existing files stay, it
shows the published partition, and then runs that partition once more with --force.
"""

import json
import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path

import report
from make_data import PARTITIONS, make_digits, make_sentences
from train_model import train

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".demo"
JOBS = Path("deployments/jobs")


def environment() -> dict[str, str]:
    """Return the variables of the job files, and settings that keep state below .demo/ and traffic on this machine."""
    ray = DEMO / "ray"
    ours = {
        "OVERNIGHT_DEMO": str(DEMO),
        "PREFECT_HOME": str(DEMO / "prefect"),
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    if "RAY_ADDRESS" not in os.environ:
        ours["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # otherwise Ray writes one to ~/.ray
        if len(str(ray)) <= 26:  # Ray makes sockets below it, and the path of a socket has at most 107 bytes
            ours["RAY_TMPDIR"] = str(ray)
    return {**os.environ, **ours}


def run_job(job: str, *options: str) -> None:
    """Run `overnight run JOB` on this terminal. If the job fails, end this program with the job's exit status."""
    command = ["overnight", "run", str(JOBS / job), *options]
    print(f"\n$ {shlex.join(command)}", flush=True)
    program = Path(sys.executable).with_name(command[0])
    if code := subprocess.run([program, *command[1:]], cwd=ROOT, env=environment(), check=False).returncode:
        sys.exit(code)


def main() -> None:
    print("The demo's data and model", flush=True)
    make_digits(DEMO)
    make_sentences(DEMO)
    report.line("images", DEMO / "digits")
    report.line("sentences", DEMO / "sentences")
    report.line("model", f"{DEMO / 'model'}, correct on {train(DEMO):.1%} of the training images that it never saw")
    newest = PARTITIONS[-1]
    receipt = DEMO / report.DIGITS / "_overnight" / f"date={newest}" / "receipt.json"
    published = receipt.exists()
    run_job("digits.yaml", "--partition", newest)
    report.digits(DEMO, newest)
    if published:
        finished = json.loads(receipt.read_text())["finished_at"]
        print(f"\nThe partition was published at {finished}, so it did not run. Running it with --force:")
        run_job("digits.yaml", "--partition", newest, "--force", "--reason", "the demo was run again")
        report.digits(DEMO, newest)
    run_job("sentences.yaml")
    report.sentences(DEMO)
    print("\nWatch the runs")
    report.line("Prefect UI", report.prefect_ui(DEMO))
    report.line("stop it", "make stop")


if __name__ == "__main__":
    main()
