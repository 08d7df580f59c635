"""Print the lines of each room beside its bound, and fail if a room has more: `size.py [--write]`.

The bounds are in `sizes.txt`. `--write` sets them to the lines of today. A commit that raises a bound gives the reason.
"""

import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT, BOUNDS = Path(__file__).parents[1], Path(__file__).with_name("sizes.txt")
PRODUCT, SUFFIXES = ("flows", "overnight", "tasks"), (".py", ".md", ".yaml", ".sh")


def room(file: Path) -> str:
    """Return the first two folders of a file of the product, and otherwise the first one."""
    is_in_package = file.parts[0] in PRODUCT and len(file.parts) > 2
    return "/".join(file.parts[: 2 if is_in_package else 1])


def tracked_files(suffixes: tuple[str, ...]) -> list[Path]:
    """Return the files in folders that git tracks, relative to the root. A link does not count."""
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = map(Path, listing.split("\0"))
    own_files = (file for file in files if (ROOT / file).is_file() and not (ROOT / file).is_symlink())
    return [file for file in own_files if len(file.parts) > 1 and file.suffix in suffixes]


def count_lines() -> dict[str, int]:
    """Return the lines of each room, and of the product, in the files that git tracks."""
    lines = Counter[str]()
    for file in tracked_files(SUFFIXES):
        count = len((ROOT / file).read_bytes().splitlines())
        lines[room(file)] += count
        lines["product"] += count * (file.parts[0] in PRODUCT)
    return dict(sorted(lines.items()))


def main(is_writing: bool) -> None:
    lines = count_lines()
    if is_writing:
        BOUNDS.write_text("".join(f"{name} {count}\n" for name, count in lines.items()))
    bounds = {name: int(bound) for name, bound in map(str.split, BOUNDS.read_text().splitlines())}
    for name, count in lines.items():
        print(f"{name:24}{count:8,}{bounds.get(name, 0):8,}{'  too many' if count > bounds.get(name, 0) else ''}")
    if any(count > bounds.get(name, 0) for name, count in lines.items()):
        sys.exit(
            "expected at most the lines of .ci/sizes.txt. Remove some, or raise the bound with --write and a reason."
        )


if __name__ == "__main__":
    main("--write" in sys.argv[1:])
