"""Copy a folder to a store: `python upload.py FOLDER s3://bucket/path` makes the bucket, and path/NAME for each file.

If the path has a file already, it copies no file.
"""

import sys
from pathlib import Path

import fsspec


def upload(folder: Path, target: str) -> int:
    """Copy the files, and return their number."""
    filesystem, path = fsspec.url_to_fs(target.rstrip("/"), use_listings_cache=False)
    filesystem.makedirs(path.split("/", 1)[0], exist_ok=True)
    if filesystem.find(path):
        return 0
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    filesystem.put([str(file) for file in files], [f"{path}/{file.relative_to(folder)}" for file in files])
    return len(files)


if __name__ == "__main__":
    print(f"{upload(Path(sys.argv[1]), sys.argv[2])} files copied to {sys.argv[2]}")
