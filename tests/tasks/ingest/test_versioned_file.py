"""Files that change or vanish between the listing and the read, or while they are read: none of their rows is taken."""

import contextlib
import io
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overnight.tasks.errors import InputError, RowError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.source import Source
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.ingest.sources.jsonl import Jsonl
from overnight.tasks.ingest.sources.media_files import Images
from overnight.tasks.ingest.sources.parquet import Parquet
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.versioned_file import SourceChanged, SourceFile, SourceVanished, read_whole
from overnight.tasks.state.read_plan import PENDING
from overnight.tasks.storage import local_file
from overnight.tasks.storage.location import Location
from tests.tasks.faulty_s3 import FaultyS3
from tests.tasks.ingest.conftest import read_all


def table(first: int, rows: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": range(first, first + rows)}), buffer, row_group_size=2)
    return buffer.getvalue()


CONTENTS: list[tuple[type[Source], str, Callable[[int], bytes]]] = [
    (Text, "txt", lambda first: f"text {first}".encode()),
    (Images, "png", lambda first: f"image {first}".encode()),
    (Parquet, "parquet", lambda first: table(first, 4)),
    (Csv, "csv", lambda first: f"x\n{first}\n{first + 1}\n".encode()),
]


@pytest.fixture(params=["disk", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    if request.param == "disk":
        return Location(str(tmp_path))
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    request.getfixturevalue("s3").create_bucket(Bucket=bucket)
    return Location(f"s3://{bucket}/in")


EACH_KIND = pytest.mark.parametrize(
    ("kind", "ending", "content"), CONTENTS, ids=[kind.__name__ for kind, *_ in CONTENTS]
)


def listed(kind: type[Source], place: Location, **settings: Any) -> tuple[Source, pa.Table]:
    source = kind(path=place.uri, **settings)
    return source, source.units(list_inputs(source, "all"))


@EACH_KIND
def test_a_file_that_changed_or_vanished_loses_its_rows_and_no_others(
    place: Location, kind: type[Source], ending: str, content: Callable[[int], bytes]
):
    for name in "abcd":
        (place / f"{name}.{ending}").write_bytes(content(1))
    source, units = listed(kind, place)
    (place / f"b.{ending}").write_bytes(content(5))  # as long as before
    (place / f"c.{ending}").remove()
    found = read_all(source, units)
    types = {(name.partition(".")[0], kind) for name, kind in found.types.items()}
    assert types == {("b", "SourceChanged"), ("c", "SourceVanished")}
    assert {name.partition(".")[0] for name in found.good} == {"a", "d"}
    for name, message in found.bad.items():
        assert message.endswith("as listed, found no file any more") or name[0] == "b"
        changed = (
            message.startswith("the file changed while the run read it: expected a file") and " bytes, " in message
        )
        assert changed or name[0] == "c"


@EACH_KIND
@pytest.mark.parametrize("vanishes", [False, True])
def test_the_job_may_have_such_a_file_fail_the_run(
    tmp_path: Path, kind: type[Source], ending: str, content: Callable[[int], bytes], vanishes: bool
):
    file = tmp_path / f"a.{ending}"
    file.write_bytes(content(1))
    source, units = listed(kind, Location(str(tmp_path)), on_changed="fail")
    if vanishes:
        file.unlink()
    else:
        file.write_bytes(content(500))
    with pytest.raises(InputError, match=rf"a\.{ending}: .*, as listed, found .*source\.on_changed is fail"):
        read_all(source, units)


@EACH_KIND
def test_a_folder_in_the_place_of_a_file_loses_its_rows_and_no_others(
    tmp_path: Path, kind: type[Source], ending: str, content: Callable[[int], bytes]
):
    for name in "ab":
        (tmp_path / f"{name}.{ending}").write_bytes(content(1))
    source, units = listed(kind, Location(str(tmp_path)))
    (tmp_path / f"b.{ending}").unlink()
    (tmp_path / f"b.{ending}").mkdir()
    found = read_all(source, units)
    assert {name.partition(".")[0] for name in found.good} == {"a"}
    assert set(found.bad.values()) == {"expected a file, found a folder"}


@EACH_KIND
@pytest.mark.parametrize("other", ["FIFO", "device"])
def test_what_took_the_place_of_a_file_is_never_opened(
    tmp_path: Path, kind: type[Source], ending: str, content: Callable[[int], bytes], other: str
):
    for name in "ab":
        (tmp_path / f"{name}.{ending}").write_bytes(content(1))
    source, units = listed(kind, Location(str(tmp_path)))
    (tmp_path / f"b.{ending}").unlink()
    if other == "FIFO":
        os.mkfifo(tmp_path / f"b.{ending}")
    else:
        (tmp_path / f"b.{ending}").symlink_to("/dev/zero")
    found = read_all(source, units)
    assert {name.partition(".")[0] for name in found.good} == {"a"}
    assert set(found.bad.values()) == {f"expected a file, found a {other}"}


def test_a_fifo_that_takes_the_place_of_a_file_as_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "regular").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    of_regular = os.stat(tmp_path / "regular")
    monkeypatch.setattr(local_file.os, "stat", lambda path: of_regular)
    with pytest.raises(RowError, match="expected a file, found a FIFO"):
        local_file.open_regular(str(tmp_path / "fifo"))


@EACH_KIND
def test_links_to_files_are_read_as_those_files(
    tmp_path: Path, kind: type[Source], ending: str, content: Callable[[int], bytes]
):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    for name in "ab":
        (tmp_path / "blobs" / name).write_bytes(content(1))
        os.utime(tmp_path / "blobs" / name, (1, 1))
        (tmp_path / "snapshot" / f"{name}.{ending}").symlink_to(f"../blobs/{name}")
    source, units = listed(kind, Location(str(tmp_path / "snapshot")))
    (tmp_path / "blobs" / "b").write_bytes(content(5))
    found = read_all(source, units)
    assert {name.partition(".")[0] for name in found.good} == {"a"}
    assert set(found.types.values()) == {"SourceChanged"}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@contextlib.contextmanager
def without_privilege() -> Iterator[None]:
    """Have permissions hold for the body, also if this process is root's."""
    user, nobody = os.geteuid(), 65534
    os.seteuid(user or nobody)
    try:
        yield
    finally:
        os.seteuid(user)


@EACH_KIND
def test_a_file_that_may_not_be_read_is_lost_alone(
    open_folder: Path, kind: type[Source], ending: str, content: Callable[[int], bytes]
):
    for name in "ab":
        (open_folder / f"{name}.{ending}").write_bytes(content(1))
    source = kind(path=str(open_folder))
    assert not read_all(source).bad  # and imports what it needs, as long as it may
    (open_folder / f"b.{ending}").chmod(0)
    with without_privilege():
        found = read_all(source)
    assert {name.partition(".")[0] for name in found.good} == {"a"}
    assert list(found.bad) == [f"b.{ending}"]
    assert found.types[f"b.{ending}"] == "PermissionError"
    assert re.search(rf"Permission denied: '.*b\.{ending}'", found.bad[f"b.{ending}"])


@pytest.mark.parametrize("now", [b"y" * 1000, None])
def test_a_file_that_changes_or_vanishes_once_it_is_open_is_noticed(place: Location, now: bytes | None):
    (place / "a").write_bytes(b"x" * 1000)
    [file] = place.files()
    with SourceFile(file.uri, file.version, file.size).open() as opened:
        if now is None:
            (place / "a").remove()
        else:
            (place / "a").write_bytes(now)
        with pytest.raises(SourceChanged if now else SourceVanished):
            opened.read(1000)


def test_rows_read_before_the_change_stay_and_the_rest_is_lost(tmp_path: Path):
    lines = [f'{{"x": {n}, "padding": "{"-" * 200}"}}' for n in range(40_000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source, units = listed(Jsonl, Location(str(tmp_path)))
    pending = units.append_column("settled", pa.nulls(len(units), pa.list_(pa.int64()))).cast(PENDING)
    blocks = source.read(pending, source.common_schema(units))
    found = [next(blocks)]
    with (tmp_path / "a.jsonl").open("r+") as file:  # in place, unlike what replaces a file whole
        file.seek(5_000_000)
        file.write("changed")
    found += blocks
    values = [x for block in found if "x" in block.column_names for x in block["x"].to_pylist()]
    assert 0 < len(values) < 40_000
    assert values == list(range(len(values)))
    lost = [row for block in found for row in block.to_pylist() if row["__error_type"]]
    assert [(row["__row"], row["__error_type"]) for row in lost] == [(len(values), "SourceChanged")]


@pytest.mark.parametrize("change", [lambda body: body[:-1], lambda body: body + b"y"], ids=["shorter", "longer"])
@pytest.mark.parametrize("is_known", [True, False], ids=["version known", "version unknown"])
def test_an_object_of_another_length_than_was_listed_is_not_taken(
    store: FaultyS3, s3: Any, change: Callable[[bytes], bytes], is_known: bool
):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    (Location(f"s3://{bucket}") / "a").write_bytes(b"x" * 1000)
    [listed_file] = Location(f"s3://{bucket}").files()
    file = SourceFile(listed_file.uri, listed_file.version if is_known else "", listed_file.size)
    assert read_whole([file]) == [b"x" * 1000]
    store.rewrite = change
    [found] = read_whole([file])
    assert isinstance(found, SourceChanged)
    assert "a file of 1,000 bytes" in str(found)


def test_a_change_is_told_by_size_and_time_as_a_user_knows_them(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"1234567")
    os.utime(tmp_path / "a", (4102444800.25, 4102444800.25))  # in the year 2100: a clock that is ahead changes nothing
    [file] = Location(str(tmp_path)).files()
    (tmp_path / "a").write_bytes(b"123")
    os.utime(tmp_path / "a", (1, 1))
    [found] = read_whole([SourceFile(file.uri, file.version, file.size)])
    assert str(found) == (
        "the file changed while the run read it: expected a file of 7 bytes, last changed at 2100-01-01 "
        "00:00:00.250000 UTC, as listed, found 3 bytes, last changed at 1970-01-01 00:00:01.000000 UTC"
    )


def test_a_read_that_ends_early_is_noticed(store: FaultyS3, s3: Any):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    (Location(f"s3://{bucket}") / "a").write_bytes(bytes(range(100)) * 10)
    [file] = Location(f"s3://{bucket}").files()
    store.rewrite = lambda body: body[: len(body) * 7 // 10]
    with SourceFile(file.uri, file.version, file.size).open() as opened:
        assert opened.read(100) == bytes(range(100))
        with pytest.raises(SourceChanged, match=r"found \d+ bytes, expected 900, from byte 100 on"):
            opened.read()
