"""A process with a Ray of its own that runs `overnight` commands one after another, as tests/warm_commands.py does.

It has the environment of its start, which the session's Ray has not: `python -m tests.commands_on_one_ray` reads the
arguments and the folder of each command as a line of JSON, and answers with its exit code and what it printed.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from overnight.tasks.workers.fork_server import ADDRESS
from tests import warm_commands
from tests.conftest import WORKER_PATH

ROOT = Path(__file__).parents[1]
Run = Callable[[tuple[str, ...], Path], warm_commands.Done]


@contextlib.contextmanager
def commands_on_one_ray(**environment: str) -> Iterator[Run]:
    """Yield a function that runs `overnight ARGUMENTS` in a folder."""
    inherited = {name: value for name, value in os.environ.items() if name not in ("RAY_ADDRESS", ADDRESS)}
    environment = {**inherited, "RAY_AUTH_MODE": "disabled", **environment}
    command, pipe = [sys.executable, "-m", "tests.commands_on_one_ray"], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def run(arguments: tuple[str, ...], folder: Path) -> warm_commands.Done:
            stdin.write(json.dumps([arguments, str(folder)]) + "\n")
            stdin.flush()
            return subprocess.CompletedProcess(arguments, *json.loads(stdout.readline()))

        yield run
        stdin.close()


def main() -> None:
    """Answer until the input ends."""
    import ray

    from overnight.flows.runs.local_ray import start_local_ray

    start_local_ray(num_cpus=2, include_dashboard=False, log_to_driver=False, namespace="prefect")
    for line in sys.stdin:
        done = warm_commands.run("overnight", *json.loads(line))
        print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
    ray.shutdown()
    shutil.rmtree(WORKER_PATH, ignore_errors=True)


if __name__ == "__main__":
    main()
