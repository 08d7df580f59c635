"""Write constraints*.txt: the exact versions, with hashes, that `make install`, `make test` and the image install.

Each file holds only packages that the files before it lack. So you install a set by naming its files in order:

    constraints.txt          the packages of Overnight and the demo
    constraints-extras.txt   the further packages of the extras
    constraints-dev.txt      the further packages of the tests and the site
    constraints-bench.txt    the further packages of the benchmarks, after the first two files
    constraints-torch.txt    PyTorch, written by hand and without a hash, because its CPU and CUDA builds differ

The files work with Python 3.11 to 3.13 on Linux and macOS. Versions stay as they are if pyproject.toml allows them.
`make lock LOCK=--upgrade` writes the newest versions. `make lock LOCK='--upgrade-package s3fs'` upgrades one package.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TORCH = "constraints-torch.txt"
# For each file: the files before it, and the groups that it locks.
LAYERS = {
    "constraints.txt": ([], ["--group=demo"]),
    "constraints-extras.txt": (["constraints.txt"], ["--group=demo", "--all-extras"]),
    "constraints-dev.txt": (
        ["constraints.txt", "constraints-extras.txt"],
        ["--group=demo", "--group=dev", "--all-extras"],
    ),
    "constraints-bench.txt": (["constraints.txt", "constraints-extras.txt"], ["--group=demo", "--group=bench"]),
}
HEADER = "# `make lock` writes this file; .ci/lock.py describes the files.\n"


def main(options: list[str]) -> None:
    for name, (before, what) in LAYERS.items():
        known = {block for file in before for block in blocks((ROOT / file).read_text())}
        found = blocks(compiled(name, before, [*what, *options]))
        kept = [block for block in found if block not in known]
        (ROOT / name).write_text(HEADER + "".join(kept))
        print(f"{name}: {len(kept)} packages", flush=True)


def compiled(name: str, before: list[str], options: list[str]) -> str:
    """Return the versions and hashes that uv finds, including those of the files before."""
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "found.txt"
        # uv keeps the versions that its output file names.
        seeds = [ROOT / file for file in (*before, name) if (ROOT / file).exists()]
        output.write_text("".join(seed.read_text() for seed in seeds))
        command = [
            *(Path(sys.executable).with_name("uv"), "pip", "compile", "pyproject.toml", "--output-file", output),
            *("--quiet", "--universal", "--python-version=3.11", "--generate-hashes"),
            *("--no-header", "--no-annotate", "--no-emit-package=torch"),
            *(f"--constraints={file}" for file in (TORCH, *before)),
            *options,
        ]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return output.read_text()


def blocks(text: str) -> list[str]:
    """Return the packages of a file, each with its hashes, in the file's order."""
    lines = [line for line in text.splitlines(keepends=True) if line.strip() and not line.startswith("#")]
    return re.split(r"^(?=\S)", "".join(lines), flags=re.MULTILINE)[1:]


if __name__ == "__main__":
    main(sys.argv[1:])
