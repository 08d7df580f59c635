"""Install a set of locked versions, and Overnight from this folder, into the environment of the Python that runs this.

    python .ci/install.py demo | dev | bench | without-torch

pip checks the hash of every file but PyTorch's: see .ci/lock.py. A line every five seconds says how far pip is.
"""

import re
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "constraints-torch.txt"
# The files of a set. `dev` and `bench` come on top of `demo`.
SETS = {
    "demo": ["constraints.txt", TORCH],
    "dev": ["constraints-extras.txt", "constraints-dev.txt"],
    "bench": ["constraints-extras.txt", "constraints-bench.txt"],
    "without-torch": ["constraints.txt", "constraints-extras.txt", "constraints-dev.txt"],
}
AZURITE = "3.35.0"  # an Azure store for the tests
SECONDS_BETWEEN_LINES = 5.0
PACKAGES = Path(sysconfig.get_path("purelib"))
# What pip prints when it begins with a package, or finds that it is there or not for this machine.
BEGUN = re.compile(r"^ *(?:Collecting|Ignoring|Requirement already satisfied:) ([^\s:]+)", re.MULTILINE)
PIP = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off", "--no-compile"]


def main(name: str) -> None:
    files = [file for file in SETS[name] if file != TORCH]
    wanted = {line for file in files for line in (ROOT / file).read_text().splitlines() if re.match(r"\w", line)}
    print(f"Installing {len(wanted)} packages with hashes ({', '.join(files)})", flush=True)
    # Every package that is needed has its line, so pip looks for no others.
    run([*PIP, "--require-hashes", "--no-deps", *(f"--requirement={file}" for file in files)], len(wanted))
    if TORCH in SETS[name]:
        print(f"Installing PyTorch ({TORCH})", flush=True)
        run([*PIP, f"--requirement={TORCH}"])
    if "constraints.txt" in files:
        print("Installing Overnight from this folder", flush=True)
        run([*PIP, "--no-deps", "--no-build-isolation", "--editable", "."])
    if name == "dev":
        print(f"Installing Azurite {AZURITE} with npm", flush=True)
        install_azurite()


def install_azurite() -> None:
    modules = Path(sys.prefix) / "node_modules"
    command = ["npm", "install", "--silent", "--no-save", "--prefix", sys.prefix, f"azurite@{AZURITE}"]
    try:
        failed = watch(command, lambda: f"{len(list(modules.glob('*')))} modules", None)
    except FileNotFoundError:
        failed = 1
    if failed:
        print("no npm, or no Azurite from it: the tests of Azure's store are skipped", flush=True)


def run(command: list[str], wanted: int = 0) -> None:
    """Run pip, which has so many packages to look at. Exit with its status and its last words if it fails."""
    with tempfile.NamedTemporaryFile("w") as output:

        def progress() -> str:
            text = Path(output.name).read_text()
            if "Installing collected packages" in text:
                return f"unpacking, {len(list(PACKAGES.glob('*.dist-info')))} packages are in {PACKAGES}"
            begun = BEGUN.findall(text)
            return f"{len(begun)} of {wanted}: {begun[-1]}" if wanted and begun else begun[-1] if begun else "begun"

        if failed := watch(command, progress, output):
            sys.exit(f"{Path(output.name).read_text()[-5000:]}\n`{' '.join(command)}` failed with status {failed}")


def watch(command: list[str], progress: Callable[[], str], output: object) -> int:
    """Run a command and return its status. Print how far it is, every few seconds."""
    began, beside = time.monotonic(), {"stdout": output, "stderr": output} if output else {}
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, **beside)  # type: ignore[call-overload]
    while True:
        try:
            status = int(process.wait(SECONDS_BETWEEN_LINES))
        except subprocess.TimeoutExpired:
            print(f"  {time.monotonic() - began:3.0f} s: {progress()}", flush=True)
        else:
            print(f"  done in {time.monotonic() - began:.0f} s", flush=True)
            return status


if __name__ == "__main__":
    if sys.argv[1:] not in [[name] for name in SETS]:
        sys.exit(f"expected one of {', '.join(SETS)}")
    main(sys.argv[1])
