"""Try docker-compose.yml for real, and break it on purpose: `python deployments/docker/try.py`.

It builds the image, starts an installation of its own beside any other (its own name, ports on 127.0.0.1, secrets and
volumes), and deploys. The steps are a manual run, a scheduled run, a backfill with a day that cannot pass, its resume
and a cancelled backfill. Then a Ray worker is killed during a run, and another loses the network. After each step it
shows `overnight status` and reads every row. At the end it prints the results, and removes everything that it made.

    COMPOSE=podman-compose python deployments/docker/try.py --no-build --keep

Exit status: 0 if every step passed, otherwise 1. COMPOSE is `docker compose` by default. ENGINE names the engine, which
otherwise follows from COMPOSE. Each step has a time limit, and --minutes limits the whole.
"""

import argparse
import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from installation import Broken, Installation
from trial import Trial


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--no-build", action="store_true", help="use the existing image")
    options.add_argument("--keep", action="store_true", help="leave the installation up, and print how to remove it")
    options.add_argument("--minutes", type=int, default=60, help="the limit of the whole (default: %(default)s)")
    chosen = options.parse_args()
    signal.signal(signal.SIGALRM, _out_of_time)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    signal.alarm(chosen.minutes * 60)
    installation = Installation()
    trial = Trial(installation)
    steps: list[Callable[[], str]] = [
        *([] if chosen.no_build else [lambda: installation.compose("build", seconds=3000) and "built"]),
        *(
            trial.up,
            trial.deploy,
            trial.refusals,
            trial.doctor,
            trial.first_run,
            trial.schedule,
            trial.backfill,
            trial.resume,
            trial.cancel,
        ),
        *(trial.kill, trial.cut_off, trial.undisturbed, trial.metrics),
    ]
    results: list[tuple[str, str, bool, float]] = []
    try:
        for step in steps:
            name = "build" if step.__name__ == "<lambda>" else step.__name__
            results.append(attempted(name, step))
            if not results[-1][2] and name in ("build", "up", "deploy", "first_run"):
                break  # the steps after it need this one
            if name not in ("build", "up", "deploy", "doctor"):
                trial.show_status()
    except (KeyboardInterrupt, TimeoutError) as error:
        results.append(("the whole", f"ended by {type(error).__name__} {error}", False, 0))
    finally:
        signal.alarm(0)
        if chosen.keep:
            ports = ", ".join(
                f"{name.removesuffix('_PORT').lower()} {port}" for name, port in installation.ports.items()
            )
            print(f"left up: {ports}. Remove it: {shlex.join(installation.command)} down --volumes")
        else:
            remove(installation)
    print("\nresults")
    for name, said, held, seconds in results:
        print(f"  {'passed' if held else 'FAILED':<8}{name:<12} {seconds:5.0f} s  {said}")
    sys.exit(0 if results and all(held for _, _, held, _ in results) else 1)


def attempted(name: str, step: Callable[[], str]) -> tuple[str, str, bool, float]:
    """Run a step, and return its name, its report, whether it passed, and its seconds."""
    print(f"\n== {name}: {(step.__doc__ or '').strip()}".rstrip(": "), flush=True)
    begun = time.monotonic()
    try:
        said, held = step(), True
    except TimeoutError:
        raise
    except Exception as error:  # the next step may still pass
        said, held = f"{'' if isinstance(error, Broken) else type(error).__name__ + ': '}{error}", False
    seconds = time.monotonic() - begun
    print(f"{'passed' if held else 'FAILED'} after {seconds:.0f} s: {said}", flush=True)
    return name, said, held, seconds


def remove(installation: Installation) -> None:
    with contextlib.suppress(Exception):
        installation.remove()
    left = [service for service in ("ray-head", "prefect-worker", "store") if installation.containers(service)]
    print(f"removed{', except ' + ', '.join(left) if left else ''}", flush=True)


def _out_of_time(*_: Any) -> None:
    raise TimeoutError("the limit of --minutes is over")


if __name__ == "__main__":
    main()
