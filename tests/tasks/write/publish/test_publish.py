"""A publish that dies half-way is completed or taken back by the next run; nobody ever sees a mixture."""

import contextlib
import json
import os
import pickle
import random
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from lance import LanceDataset
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy.schema import CreateSchema

from overnight.tasks.errors import CheckFailed
from overnight.tasks.state import staged_parts
from overnight.tasks.state.lease import LeaseLost
from overnight.tasks.state.run import Run, read_json, write_json
from overnight.tasks.write.publish.publish import is_under_way, prepared, publish, repair
from overnight.tasks.write.sink import Sink
from overnight.tasks.write.sinks import directory_swap
from overnight.tasks.write.sinks.delta import DeltaSink
from overnight.tasks.write.sinks.iceberg import IcebergSink
from overnight.tasks.write.sinks.lance import LanceSink
from overnight.tasks.write.sinks.parquet import ParquetSink
from overnight.tasks.write.sinks.sql import SqlSink
from overnight.tasks.write.tables.database import engine
from tests.contracts.sinks.publications import (
    NO_ERRORS,
    columns_of,
    holding,
    kept_of,
    numbered,
    publish_parts,
    read_files,
    receipt_of,
    records_of,
    sink_of,
    stage,
    visible,
)
from tests.tasks.runs import make_run
from tests.tasks.write.publish import dying_publishes

TABLES = DeltaSink | IcebergSink | LanceSink | SqlSink  # their readers always see one version
OLD, NEW = [1, 2, 3], [4, 5]
ROOT = Path(__file__).parents[4]
After = list[int]  # the rows that readers find after the publish
Dying = Callable[[Path, list[dying_publishes.Work], str], list[int]]


@pytest.fixture(scope="module")
def dying(s3: Any) -> Iterator[Dying]:
    """Do work that dies as it is told; return the numbers of effects of the work that did not die."""
    command, pipe = [sys.executable, "-m", dying_publishes.__name__], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=ROOT, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def do(folder: Path, work: list[dying_publishes.Work], store: str) -> list[int]:
            (folder / "work").write_bytes(pickle.dumps(work))
            stdin.write(json.dumps([str(folder / "work"), store, dict(os.environ)]) + "\n")
            stdin.flush()
            counts, error = json.loads(stdout.readline())
            assert not error, error
            return [int(count) for count in counts]

        yield do
        stdin.close()


@pytest.fixture
def copies(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], tuple[str, Callable[[str], str]]]:
    """A place on a store, and how to copy all of it to another of a given name."""

    def on_disk(name: str) -> str:
        not_whole = shutil.ignore_patterns("*.tmp")  # a lease that is being renewed meanwhile
        shutil.copytree(tmp_path / "template", tmp_path / name, symlinks=True, ignore=not_whole)
        return str(tmp_path / name)

    def make(store: str) -> tuple[str, Callable[[str], str]]:
        if store == "disk":
            (tmp_path / "template").mkdir()
            return str(tmp_path / "template"), on_disk
        client, bucket = request.getfixturevalue("s3"), f"publish-{uuid.uuid4().hex[:8]}"
        client.create_bucket(Bucket=bucket)

        def on_s3(name: str) -> str:
            for item in client.list_objects_v2(Bucket=bucket, Prefix="template/")["Contents"]:
                key = item["Key"].replace("template", name, 1)
                client.copy_object(Bucket=bucket, Key=key, CopySource={"Bucket": bucket, "Key": item["Key"]})
            return f"s3://{bucket}/{name}"

        return f"s3://{bucket}/template", on_s3

    return make


def moved(run: Run, place: str) -> Run:
    sink = replace(run.sink, template=f"{place}/out")
    return replace(run, sink=sink, state=sink / "_overnight")


def seen_by_followers(run: Run, sink: Sink) -> list[int]:
    """The column x in the files that the receipt lists; where it lists none, what everybody sees."""
    if isinstance(sink, LanceSink | SqlSink):
        return visible(run, sink)
    receipt = read_json(run.ledger / "receipt.json")
    assert receipt is not None
    files = [file for file in receipt["files"] if not file.endswith(".images")]
    return sorted(read_files(run.sink, files)["x"].to_pylist())


def assert_one_version(run: Run, sink: Sink, store: str, after: After) -> None:
    """What the sink promises readers, also while a publish lies there cut off."""
    if store == "disk" or isinstance(sink, TABLES):
        assert visible(run, sink) in (OLD, after)
    if store == "s3" or isinstance(sink, TABLES):
        assert seen_by_followers(run, sink) in (OLD, after)


def assert_put_right(run: Run, sink: Sink, after: After) -> None:
    """All of the old table or all of the new one, what belongs to it, and nothing besides."""
    said = repair(run, sink)
    newest = read_json(run.ledger / "receipt.json")
    assert newest is not None
    now = visible(run, sink)
    assert now == (after if newest["generation"] == "g002" else OLD)
    assert now == seen_by_followers(run, sink)
    if said is not None:
        assert (said.receipt is not None) == (now == after)
    assert repair(run, sink) is None
    assert len(staged_parts.read_records(run.parts)) == (0 if now == after else 1 if after[:3] == OLD else 2)
    assert not [name for place in (run.sink, run.sink.parent) for name in place.names() if "publishing" in name]
    if not isinstance(sink, TABLES):
        assert {name for name in run.target.names() if name[0] not in "_."} == {
            file.rsplit("/", 1)[-1] for file in newest["files"]
        }
    elif now == OLD and isinstance(sink, LanceSink):
        assert {f"data/{name}" for name in (run.sink / "data").names()} == set(newest["files"])
    elif now == OLD:
        assert not [name for name in run.target.names() if "g002" in name]


def begin(kind: str, place: str, partition: str, opened: contextlib.ExitStack, keeps: bool = False) -> tuple[Any, ...]:
    """What `publish` takes: the old rows are published at the place, and the new ones prepared, until `opened` ends.

    If it `keeps`, the new rows will join the old ones. Then each are one part, which needs no Ray.
    """
    sink, run = sink_of(kind, place), numbered(place, 2, partition)
    if kind == "postgresql":
        with engine(sink.url).begin() as connection:
            connection.execute(CreateSchema(sink.table.partition(".")[0]))
    old, new = ([OLD], [NEW]) if keeps else ([OLD[:2], OLD[2:]], [NEW[:1], NEW[1:]])
    files = publish_parts(numbered(place, 1, partition), sink, *(columns_of(kind, part) for part in old))
    stage(run, *(columns_of(kind, part) for part in new), first=len(OLD) if keeps else 0)
    held = opened.enter_context(holding(run))
    kept = kept_of(files, columns_of(kind, OLD)) if keeps else None
    ready = opened.enter_context(prepared(held, sink, *records_of(run), kept))
    return held, sink, ready, NO_ERRORS, receipt_of(run, sink, ready)


REPLACING = [
    ("parquet", "disk", "2026-01-02"),
    ("csv", "disk", "2026-01-02"),
    ("jsonl", "s3", "all"),
    ("parquet", "disk", "all"),
    ("parquet", "s3", "2026-01-02"),
    ("images", "disk", "2026-01-02"),
    ("images", "s3", "all"),
    ("iceberg", "disk", "2026-01-02"),
    ("lance", "disk", "2026-01-02"),
    ("lance", "s3", "all"),
    ("sql", "disk", "2026-01-02"),
    ("postgresql", "disk", "2026-01-02"),
    ("delta", "disk", "2026-01-02"),
    ("delta", "disk", "all"),
    ("delta", "s3", "2026-01-02"),
]
KEEPING = [
    ("parquet", "disk", "2026-01-02"),
    ("parquet", "disk", "all"),
    ("images", "disk", "2026-01-02"),
    ("jsonl", "s3", "all"),
    ("delta", "disk", "2026-01-02"),
    ("iceberg", "disk", "2026-01-02"),
    ("lance", "disk", "2026-01-02"),
    ("sql", "disk", "2026-01-02"),
]


@pytest.mark.chaos
@pytest.mark.parametrize(("kind", "store", "partition"), REPLACING)
def test_a_publish_killed_before_any_of_its_steps_is_put_right_by_the_next_run(
    kind: str,
    store: str,
    partition: str,
    dying: Dying,
    copies: Any,
    ray_session: None,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    if kind == "postgresql":
        request.getfixturevalue("postgres")
    kill_before_each_step(kind, store, partition, dying, copies, tmp_path, keeps=False)


@pytest.mark.chaos
@pytest.mark.parametrize(("kind", "store", "partition"), KEEPING)
def test_a_publish_that_adds_rows_and_is_killed_before_any_of_its_steps_is_put_right_by_the_next_run(
    kind: str, store: str, partition: str, dying: Dying, copies: Any, tmp_path: Path
) -> None:
    kill_before_each_step(kind, store, partition, dying, copies, tmp_path, keeps=True)


def kill_before_each_step(
    kind: str, store: str, partition: str, dying: Dying, copies: Any, tmp_path: Path, keeps: bool
) -> None:
    """A repair that is killed too, at a random step, is put right by the one after it."""
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    chance = random.Random(seed)
    place, copied = copies(store)
    after = [*OLD, *NEW] if keeps else NEW
    with contextlib.ExitStack() as opened:
        begun = begin(kind, place, partition, opened, keeps)

        def at_a_place_of_its_own(name: str) -> tuple[Any, ...]:
            if kind in ("iceberg", "postgresql"):  # whole paths lie in it, or nothing on the disk: no copy is its like
                return begin(kind, str(tmp_path / name), partition, opened, keeps)
            copy = copied(name)
            return (moved(begun[0], copy), sink_of(kind, copy), *begun[2:])

        at_a_place_of_its_own("whole")
        (steps,) = dying(tmp_path, [("publish", at_a_place_of_its_own("count"), 0)], store)
        assert steps > 5
        all_begun = [at_a_place_of_its_own(f"kill-{moment}") for moment in range(1, steps + 1)]
    runs = [(run, its_sink) for run, its_sink, *_ in all_begun]
    dying(tmp_path, [("publish", killed, moment + 1) for moment, killed in enumerate(all_begun)], store)
    results = []
    for killed, its_sink in runs:
        assert_one_version(killed, its_sink, store, after)
    dying(tmp_path, [("repair", killed, chance.randint(1, 8)) for killed in runs], store)
    for killed, its_sink in runs:
        assert_one_version(killed, its_sink, store, after)
        assert_put_right(killed, its_sink, after)
        results.append(visible(killed, its_sink))
    assert results[0] == OLD
    assert results[-1] == after
    assert results == sorted(results)


@pytest.mark.parametrize("kind", ["parquet", "jsonl", "delta", "iceberg", "lance", "sql"])
def test_a_zombie_cannot_publish_and_leaves_nothing(kind: str, ray_session: None, tmp_path: Path) -> None:
    sink, zombie = sink_of(kind, tmp_path), numbered(tmp_path, 1)
    stage(zombie, {"x": NEW})
    with holding(zombie) as held:
        before = prepared(held, sink, *records_of(zombie))
        ready = before.__enter__()
    successor = numbered(tmp_path, 2)
    publish_parts(successor, sink, {"x": OLD})
    with pytest.raises(LeaseLost, match="taken over"):
        publish(held, sink, ready, NO_ERRORS, receipt_of(zombie, sink, ready))
    assert visible(successor, sink) == OLD
    assert not [name for place in (zombie.sink, zombie.target) for name in place.names() if "g001" in name]


@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        ("parquet", (ParquetSink, "commit")),
        ("parquet", (directory_swap, "exchange")),
        ("delta", (DeltaSink, "commit")),
        ("delta", (DeltaTable, "create_write_transaction")),
        ("iceberg", (IcebergSink, "commit")),
        ("iceberg", (SqlCatalog, "commit_table")),
        ("lance", (LanceSink, "commit")),
        ("lance", (LanceDataset, "commit")),
        ("sql", (SqlSink, "commit")),
    ],
)
def test_a_switch_that_was_paused_while_its_publish_was_taken_back_changes_nothing(
    kind: str, moment: tuple[Any, str], partition: str, ray_session: None, tmp_path: Path, monkeypatch: Any
) -> None:
    """The worst moment: the zombie has checked its lease, and the successor's repair comes before the switch."""
    sink = sink_of(kind, tmp_path)
    publish_parts(numbered(tmp_path, 1, partition), sink, {"x": OLD})
    zombie = numbered(tmp_path, 2, partition)
    stage(zombie, {"x": NEW})
    real, repaired = getattr(*moment), []

    def late(*args: Any, **kwargs: Any) -> Any:
        if not repaired:
            repaired.append(None)
            (zombie.ledger / "lease" / f"{held.token + 1:08d}").create(b"{}")
            repaired[0] = repair(replace(numbered(tmp_path, 3, partition), token=held.token + 1), sink)
        return real(*args, **kwargs)

    monkeypatch.setattr(*moment, late)
    with holding(zombie) as held, prepared(held, sink, *records_of(zombie)) as ready, pytest.raises(LeaseLost):
        publish(held, sink, ready, NO_ERRORS, receipt_of(zombie, sink, ready))
    assert repaired[0] is not None
    assert repaired[0].receipt is None
    assert visible(zombie, sink) == OLD
    assert seen_by_followers(zombie, sink) == OLD
    assert len(staged_parts.read_records(zombie.parts)) == 1


@pytest.mark.parametrize("kind", ["parquet", "csv", "delta", "iceberg", "lance", "sql"])
@pytest.mark.parametrize("partition", ["2026-01-02", "all"])
def test_what_a_check_refuses_is_removed_and_its_staging_kept(
    kind: str, partition: str, ray_session: None, tmp_path: Path
) -> None:
    sink, run = sink_of(kind, tmp_path), numbered(tmp_path, 1, partition)
    publish_parts(run, sink, {"x": OLD})
    again = numbered(tmp_path, 2, partition)
    stage(again, {"x": NEW})
    before = sorted(path for path in tmp_path.rglob("*") if "_overnight" not in path.parts)

    def refuse() -> None:
        with holding(again) as held, prepared(held, sink, *records_of(again)) as ready:
            assert ready.rows == 2
            raise CheckFailed("no")

    with pytest.raises(CheckFailed):
        refuse()
    after = sorted(path for path in tmp_path.rglob("*") if "_overnight" not in path.parts)
    assert [path for path in after if path.is_file()] == [path for path in before if path.is_file()]
    assert visible(again, sink) == OLD
    assert len(staged_parts.read_records(again.parts)) == 1
    assert repair(again, sink) is None


def test_a_publish_is_under_way_from_before_its_switch_until_what_is_old_is_gone(
    ray_session: None, tmp_path: Path
) -> None:
    seen = []

    class Watched(ParquetSink):
        def prepare(self, run: Run, *more: Any) -> Any:
            seen.append(is_under_way(run))
            return super().prepare(run, *more)

        def commit(self, run: Run, *more: Any) -> None:
            seen.append(is_under_way(run))
            super().commit(run, *more)

        def finish(self, run: Run, *more: Any) -> None:
            super().finish(run, *more)
            seen.append(is_under_way(run))

    run = numbered(tmp_path, 1)
    publish_parts(run, Watched(path="-"), {"x": pa.array(OLD)})
    assert [*seen, is_under_way(run)] == [False, True, True, False]


class Switched(ParquetSink):
    """A sink whose readers see the new rows already."""

    kind: Literal["switched"] = "switched"

    def is_committed(self, run: Run, files: list[str], old: list[str]) -> bool:
        return True

    def finish(self, run: Run, files: list[str], old: list[str]) -> None: ...


def test_a_publish_that_is_completed_names_the_run_that_had_begun_it(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    begun = {"generation": run.generation, "attempt": run.attempt, "flow_run": "run 1"}
    write_json(run.ledger / "publishing.json", {**begun, "receipt": {"files": []}, "old": []})
    (run.home / "quarantine").write_bytes(b"")
    repaired = repair(run, Switched(path="-"))
    assert repaired
    assert (repaired.flow_run, repaired.receipt) == ("run 1", {"files": []})
