"""A script that runs a command and ends it when its parent process ends, in any way.

python kill_with_parent.py COMMAND ...      in a process group of its own, with a pipe as standard input

The pipe closes when the process that holds its other end ends, even after a SIGKILL. Another process only waits for
that and then kills the whole group. That process is not a child of the parent, because Ray kills the children of a
worker that ends. It would also kill the process that has to end the rest.
"""

import os
import signal
import subprocess
import sys


def main(command: list[str]) -> int:
    if not (waiting := os.fork()):
        os.read(sys.stdin.fileno(), 1)
        os.killpg(0, signal.SIGKILL)
    try:
        return subprocess.call(command, stdin=subprocess.DEVNULL)
    finally:
        os.kill(waiting, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
