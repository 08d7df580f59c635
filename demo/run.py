"""`make demo`: makes the data, trains the model, runs the two jobs and says where everything is.

Everything it makes lies under .demo/, the state of Prefect and Ray included. It is safe to run again: what is made
stays, the published partition is shown, and then run once more with --force.
"""

import json
import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import report
from make_data import PARTITIONS, make_digits, make_sentences
from train_model import train

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / ".demo"
JOBS = Path("deployments/jobs")


def environment() -> dict[str, str]:
    """What the jobs' files refer to, and settings that keep all state below .demo/ and all traffic on this machine."""
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
        ours["RAY_AUTH_TOKEN"] = secrets.token_hex(32)  # else Ray writes one to ~/.ray
        if len(str(ray)) < 40:  # Ray puts sockets below it, and a socket's path ends at 107 bytes
            ours["RAY_TMPDIR"] = str(ray)
    return {**os.environ, **ours}


def run_job(job: str, *options: str) -> dict[str, Any]:
    """`overnight run JOB --json`, its progress on this terminal; the receipt, or this program ends as the job did."""
    command = ["overnight", "run", str(JOBS / job), *options, "--json"]
    print(f"\n$ {shlex.join(command)}", flush=True)
    program = Path(sys.executable).with_name(command[0])
    done = subprocess.run(
        [program, *command[1:]], cwd=ROOT, env=environment(), stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(done.stdout, end="")
        sys.exit(done.returncode)
    return dict(json.loads(done.stdout))


def main() -> None:
    print("The demo's data and model", flush=True)
    make_digits(DEMO)
    make_sentences(DEMO)
    report.line("images", DEMO / "digits")
    report.line("sentences", DEMO / "sentences")
    report.line("model", f"{DEMO / 'model'}, right on {train(DEMO):.1%} of the training images that it never saw")
    newest = PARTITIONS[-1]
    published = (DEMO / report.DIGITS / "_overnight" / f"date={newest}" / "receipt.json").exists()
    receipt = run_job("digits.yaml", "--partition", newest)
    report.digits(DEMO, receipt)
    if published:
        print(f"\nThat was published already, at {receipt['finished_at']}, and nothing was run. Once more, by force:")
        receipt = run_job("digits.yaml", "--partition", newest, "--force", "--reason", "the demo was run again")
        report.digits(DEMO, receipt)
    report.sentences(DEMO, run_job("sentences.yaml"))
    print("\nWatch it")
    report.line("Prefect UI", report.prefect_ui(DEMO))
    report.line("stop it", "make stop")


if __name__ == "__main__":
    main()
