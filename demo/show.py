"""`python demo/show.py FOLDER`: print the columns of a published table and a few of its rows."""

import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS, WIDTH = 3, 210


def show(folder: Path) -> None:
    files = [file for file in sorted(folder.rglob("*.parquet")) if "_overnight" not in file.relative_to(folder).parts]
    if not files:
        sys.exit(f"{folder}: expected published Parquet files, found none")
    table = pa.concat_tables([pq.read_table(file, partitioning=None) for file in files], promote_options="permissive")
    print(f"{folder}: {len(table)} rows, {len(files)} files")
    for field in table.schema:
        values = [str(value) for value in table[field.name][:ROWS].to_pylist()]
        nulls = f", {count} null" if (count := table[field.name].null_count) else ""
        shown = " | ".join(value[: WIDTH // len(values)] for value in values)
        print(f"  {field.name:<24} {f'{field.type}{nulls}':<36} {shown}")


if __name__ == "__main__":
    show(Path(sys.argv[1]))
