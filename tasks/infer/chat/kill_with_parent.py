"""A script that runs a command, and ends it when the script's parent process ends, in any way.

    python kill_with_parent.py COMMAND ...      in a process group of its own, with a pipe as standard input

The pipe closes when the parent ends, even after a SIGKILL. A process that the script forks only waits for that, and
then kills the whole group. This process is not a child of the parent. Ray kills the children of a worker that ends, and
would otherwise also kill the process that must end the rest.
"""

import os
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    """Run `command` and return its exit code. Kill this whole process group if standard input closes before that."""
    if not (waiting := os.fork()):
        os.read(sys.stdin.fileno(), 1)
        os.killpg(0, signal.SIGKILL)
    try:
        return subprocess.call(command, stdin=subprocess.DEVNULL)
    finally:
        os.kill(waiting, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
