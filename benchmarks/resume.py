"""Measure a resume: `python benchmarks/resume.py [--rows 10000000] [--shape files ...] [--folder DIR]`.

It makes a partition and stages 90% of it, in real parts with small rows. It measures the steps of an attempt before
the read, and the planning of a publish, each in a process of its own:

    files              a unit is one row, staged in shuffled order: each part settles thousands of scattered units
    tables             a unit is a row group of 10,000 rows; a random tenth of the rows is filtered
    files-overlapping, tables-overlapping    the same, but a fifth of the staged rows is staged twice in other parts

Seconds are wall time and CPU time. Memory is the process's peak, beside its memory before the first step (libraries).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from overnight.tasks.rows import blocks as rows
from overnight.tasks.shuffle.order import ShuffleFiles
from overnight.tasks.state import read_plan, row_ranges, staged_parts
from overnight.tasks.state.manifest import UNITS, begin_manifest, read_manifest
from overnight.tasks.state.pending_units import write_pending
from overnight.tasks.state.read_plan import reorder
from overnight.tasks.storage.location import Location
from overnight.tasks.write.merge.merge_parts import _groups

SHAPES = ("files", "tables", "files-overlapping", "tables-overlapping")
ROWS_PER_PART, ROWS_PER_UNIT = 5_000, 10_000
STAGED, STAGED_TWICE = 0.9, 0.2
MEASURES: staged_parts.Measures = {
    stage: {"seconds": 1.0, "rows": 1, "bytes": 1} for stage in (*rows.MEASURED_STAGES, "write")
}


def make(folder: Location, shape: str, count: int) -> None:
    """Write a manifest of `count` rows, and parts that settle nine tenths of them."""
    per_unit = ROWS_PER_UNIT if shape.startswith("tables") else 1
    with begin_manifest(folder / "manifest") as manifest:
        manifest.add(units(count // per_unit, per_unit))
        manifest.finish("digest", None)
    with Pool(2) as pool:
        for _ in pool.imap_unordered(_stage, parts(folder / "parts", shape, count), chunksize=8):
            pass


def units(count: int, rows_each: int) -> pa.Table:
    """Return a manifest as for objects in S3: a path of 18 characters, its URI, an ETag."""
    numbers = pa.array(np.arange(count))
    names = pc.utf8_lpad(numbers.cast(pa.string()), 8, "0")
    path = pc.binary_join_element_wise(pc.utf8_slice_codeunits(names, 0, 5), names, "/")
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    version = digits[np.random.default_rng(0).integers(0, 16, (count, 32), np.uint8)].view("S32").ravel()
    constant = {"size": 100_000, "first_row": 0, "rows": rows_each, "row_group": 0}
    columns: dict[str, Any] = {name: pa.repeat(value, count) for name, value in constant.items()}
    uri = pc.binary_join_element_wise("s3://bucket/raw/date=2026-11-19", path, "/")
    columns |= {"unit": numbers, "path": path, "uri": uri, "version": pa.array(version).cast(pa.string())}
    return pa.table(columns).select(UNITS.names).cast(UNITS)


def parts(folder: Location, shape: str, count: int) -> Iterator[tuple[Location, str, np.ndarray, bool]]:
    """Yield the folder and the name of each part, its rows, and whether a unit is a file of one row.

    The numbers of rows count through all units.
    """
    random, is_files = np.random.default_rng(1), shape.startswith("files")
    order = random.permutation(count) if is_files else np.arange(count)
    order = order[: int(count * STAGED)]
    attempts = [("20260101T000000-aaaaaa", order)]
    if shape.endswith("overlapping"):
        again = order[len(order) // 3 :][: int(len(order) * STAGED_TWICE)]
        attempts.append(("20260102T000000-bbbbbb", random.permutation(again) if is_files else again[1234:]))
    for attempt, staged in attempts:
        for number, start in enumerate(range(0, len(staged), ROWS_PER_PART)):
            yield folder, f"{attempt}-{number:06d}", staged[start : start + ROWS_PER_PART], is_files


def _stage(part: tuple[Location, str, np.ndarray, bool]) -> None:
    folder, name, numbers, is_files = part
    unit, row = (numbers, np.zeros_like(numbers)) if is_files else np.divmod(numbers, ROWS_PER_UNIT)
    # A row has the same state in every part: one in ten is filtered, one in a thousand is quarantined.
    draw = (numbers * 2654435761) % 2**32 // 7 % 1000
    states = np.select([draw < 1, draw < 101], [rows.QUARANTINED, rows.FILTERED], rows.LIVE).astype(np.int8)
    block = pa.table({"__unit": unit, "__row": row, "__state": states})
    live, bad = (block.filter(pa.array(states == state)) for state in (rows.LIVE, rows.QUARANTINED))
    table = live.append_column("score", pa.array(np.full(len(live), 0.5)))
    text = pa.repeat("why", len(bad))
    errors = pa.table(
        [*[text] * len(staged_parts.QUARANTINE), bad["__unit"], bad["__row"]], schema=staged_parts.DETAILS
    )
    staged_parts.write_part(
        folder, name, table.drop_columns(["__state"]), errors, row_ranges.ranges_of(block), MEASURES, "zstd"
    )


def resume(folder: Location, step: Callable[[str], None]) -> None:
    """Do the work of ingest and shuffle before the read, and that of ten read tasks."""
    units, _ = read_manifest(folder / "manifest", ["size", "first_row", "rows"])
    step("read the manifest")
    records = staged_parts.read_records(folder / "parts")
    step("read footers")
    merged = row_ranges.merge([record.ranges for record in records])
    del records
    step("merge")
    order = folder / "order"
    left = write_pending(order, folder / "manifest", units, merged)
    step("subtract, write the order")
    del units, merged
    reorder(order, ShuffleFiles())
    step("shuffle files")
    for _ in range(4):  # Ray requests the read tasks four times
        blocks = read_plan.read_summaries(order)
    step("read summaries")
    for block in range(10):
        read_plan.read_block(order, block)
    step("ten read tasks")
    print(json.dumps({"pending": left, "blocks": len(blocks)}), file=sys.stderr)


def publish(folder: Location, step: Callable[[str], None]) -> None:
    """Do the work of write between the stream and the merging of parts."""
    units, _ = read_manifest(folder / "manifest", ["path", "size", "first_row", "rows"])
    step("read the manifest")
    records = staged_parts.read_records(folder / "parts")
    step("read footers")
    merged = row_ranges.merge([record.ranges for record in records])
    step("merge")
    totals = row_ranges.count(units, merged)
    step("audit")
    _groups(records, merged, 128 * 2**20)
    step("groups")
    errors = staged_parts.read_errors(folder / "parts", records, merged)
    step("quarantine")
    assert totals.quarantined == len(errors)
    print(json.dumps({"written": totals.written, "doubled": len(totals.doubled_units)}), file=sys.stderr)


def measure(work: Callable[[Location, Callable[[str], None]], None], folder: Location) -> None:
    """Print the steps of `work` as JSON: name -> seconds, CPU seconds, peak MB until then."""
    steps: dict[str, list[float]] = {}
    clock = [time.perf_counter(), time.process_time()]

    def step(name: str) -> None:
        now = [time.perf_counter(), time.process_time()]
        steps[name] = [now[0] - clock[0], now[1] - clock[1], peak_mb()]
        clock[:] = now

    Path("/proc/self/clear_refs").write_text("5")  # resets the peak, which a child inherits from its parent
    before = peak_mb()
    work(folder, step)
    print(json.dumps({"before": before, "steps": steps}))


def peak_mb() -> float:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def report(folder: Location, shape: str, count: int) -> None:
    staged = list((folder / "parts").files((staged_parts.PART,)))
    ranges, footer_bytes = 0, 0
    for record in staged_parts.read_records(folder / "parts")[:50]:
        ranges += len(record.ranges) * len(staged) // min(50, len(staged))
        footer_bytes += len(row_ranges.encode(record.ranges)) * len(staged) // min(50, len(staged))
    print(
        f"\n{shape}: {count:,} rows, {len(staged):,} parts, about {ranges:,} ranges, "
        f"{footer_bytes / 2**20:,.0f} MiB of footers"
    )
    print(f"{'':10}{'step':27}{'seconds':>9}{'CPU s':>9}{'peak MB':>9}")
    for work in ("resume", "publish"):
        command = [sys.executable, __file__, "--measure", work, "--folder", folder.template]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
        found = json.loads(done.stdout)
        steps = found["steps"] | {"all": [*(sum(s[i] for s in found["steps"].values()) for i in (0, 1)), 0]}
        steps["all"][2] = peak = max(s[2] for s in steps.values())
        for name, (seconds, cpu, memory) in steps.items():
            print(f"{work:10}{name:27}{seconds:9.2f}{cpu:9.2f}{memory:9.0f}")
        before = found["before"]
        print(f"{work:10}{(peak - before) * 2**20 / count:.0f} bytes per row above the {before:.0f} MB before")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--shape", nargs="*", choices=SHAPES, default=SHAPES)
    parser.add_argument("--folder", help="the folder of the staged parts; reused if it exists; default: temporary")
    parser.add_argument("--measure", choices=("resume", "publish"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure({"resume": resume, "publish": publish}[options.measure], Location(options.folder))
        return
    with tempfile.TemporaryDirectory(prefix="resume-") as temporary:
        for shape in options.shape:
            folder = Location(options.folder or temporary) / f"{shape}-{options.rows}"
            if not Path(folder.uri, "made").exists():
                make(folder, shape, options.rows)
                (folder / "made").write_bytes(b"")
            report(folder, shape, options.rows)


if __name__ == "__main__":
    main()
