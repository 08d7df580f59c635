"""Run as a script: a command that ends when whoever started it does, however that ends.

    python kill_with_parent.py COMMAND ...      in a process group of its own, with a pipe as standard input

The pipe closes with the process that holds its other end, a SIGKILL included; a process that only waits for that then
kills the whole group. It is no child of whoever started this, for Ray kills the children of a worker that ends, and
with them whoever was to end the rest.
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
