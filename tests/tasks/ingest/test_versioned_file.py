"""Files that change or vanish between the listing and the read, or while they are read: none of their rows is taken."""

import contextlib
import io
import os
import re
import tempfile
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
from tests.contracts.sources.reading import Read
from tests.tasks.faulty_s3 import FaultyS3
from tests.tasks.ingest.conftest import read_all


def parquet(first: int) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(pa.table({"x": range(first, first + 4)}), buffer, row_group_size=2)
    return buffer.getvalue()


KINDS: dict[str, tuple[type[Source], Callable[[int], bytes]]] = {
    "txt": (Text, lambda first: f"text {first}".encode()),
    "png": (Images, lambda first: f"image {first}".encode()),
    "parquet": (Parquet, parquet),
    "csv": (Csv, lambda first: f"x\n{first}\n{first + 1}\n".encode()),
}
EACH_KIND = pytest.mark.parametrize("ending", KINDS)


def listed(kind: type[Source], place: Location | Path, **settings: Any) -> tuple[Source, pa.Table]:
    source = kind(path=str(getattr(place, "uri", place)), **settings)
    return source, source.units(list_inputs(source, "all"))


def write(folder: Path, ending: str, names: str = "ab") -> None:
    for name in names:
        (folder / f"{name}.{ending}").write_bytes(KINDS[ending][1](1))


def files_of(rows: Any) -> set[str]:
    return {name.partition(".")[0] for name in rows}


def assert_lost(found: Read, reason: str) -> None:
    """All rows of the file b are lost for this reason, and none of the file a."""
    assert (files_of(found.good), files_of(found.bad), set(found.bad.values())) == ({"a"}, {"b"}, {reason})


@EACH_KIND
def test_an_object_that_changed_or_vanished_loses_its_rows_and_no_others(place: Location, ending: str) -> None:
    kind, content = KINDS[ending]
    for name in "abcd":
        (place / f"{name}.{ending}").write_bytes(content(1))
    source, units = listed(kind, place)
    (place / f"b.{ending}").write_bytes(content(5))  # as long as before
    (place / f"c.{ending}").remove()
    found = read_all(source, units)
    assert {(name[0], kind) for name, kind in found.types.items()} == {("b", "SourceChanged"), ("c", "SourceVanished")}
    assert files_of(found.good) == {"a", "d"}


@EACH_KIND
@pytest.mark.parametrize("vanishes", [False, True])
def test_the_job_may_have_such_a_file_fail_the_run(tmp_path: Path, ending: str, vanishes: bool) -> None:
    kind, content = KINDS[ending]
    write(tmp_path, ending, "a")
    source, units = listed(kind, tmp_path, on_changed="fail")
    file = tmp_path / f"a.{ending}"
    file.unlink() if vanishes else file.write_bytes(content(500))
    with pytest.raises(InputError, match=rf"a\.{ending}: .*source\.on_changed is fail"):
        read_all(source, units)


@EACH_KIND
@pytest.mark.parametrize("other", ["folder", "FIFO", "device"])
def test_what_took_the_place_of_a_file_is_never_opened(tmp_path: Path, ending: str, other: str) -> None:
    write(tmp_path, ending)
    source, units = listed(KINDS[ending][0], tmp_path)
    file = tmp_path / f"b.{ending}"
    file.unlink()
    take = {"folder": file.mkdir, "FIFO": lambda: os.mkfifo(file), "device": lambda: file.symlink_to("/dev/zero")}
    take[other]()
    assert_lost(read_all(source, units), f"expected a file, found a {other}")


def test_a_fifo_that_takes_the_place_of_a_file_as_it_is_opened_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "regular").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    of_regular = os.stat(tmp_path / "regular")
    monkeypatch.setattr(local_file.os, "stat", lambda path: of_regular)
    with pytest.raises(RowError, match="expected a file, found a FIFO"):
        local_file.open_regular(str(tmp_path / "fifo"))


@EACH_KIND
def test_a_link_is_read_as_its_file_and_changes_with_it(tmp_path: Path, ending: str) -> None:
    kind, content = KINDS[ending]
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshot").mkdir()
    write(tmp_path / "blobs", ending)
    for name in "ab":
        os.utime(tmp_path / f"blobs/{name}.{ending}", (1, 1))
        (tmp_path / f"snapshot/{name}.{ending}").symlink_to(f"../blobs/{name}.{ending}")
    source, units = listed(kind, tmp_path / "snapshot")
    (tmp_path / f"blobs/b.{ending}").write_bytes(content(5))
    found = read_all(source, units)
    assert (files_of(found.good), set(found.types.values())) == ({"a"}, {"SourceChanged"})


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
def test_a_file_that_may_not_be_read_is_lost_alone(ending: str) -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are its user's alone
        folder = Path(name)
        folder.chmod(0o755)
        write(folder, ending)
        source = KINDS[ending][0](path=name)
        assert not read_all(source).bad  # and imports what it needs, as long as it may
        (folder / f"b.{ending}").chmod(0)
        with without_privilege():
            found = read_all(source)
    assert (files_of(found.good), found.types) == ({"a"}, {f"b.{ending}": "PermissionError"})
    assert re.search(rf"Permission denied: '.*b\.{ending}'", found.bad[f"b.{ending}"])


@pytest.mark.parametrize("now", [b"y" * 1000, None])
@pytest.mark.parametrize("on", ["disk", "s3"])
def test_a_file_that_changes_or_vanishes_once_it_is_open_is_noticed(
    request: pytest.FixtureRequest, tmp_path: Path, on: str, now: bytes | None
) -> None:
    place = Location(str(tmp_path)) if on == "disk" else request.getfixturevalue("place")
    (place / "a").write_bytes(b"x" * 1000)
    [file] = place.files()
    with SourceFile(file.uri, file.version, file.size).open() as opened:
        (place / "a").remove() if now is None else (place / "a").write_bytes(now)
        with pytest.raises(SourceChanged if now else SourceVanished):
            opened.read(1000)


def test_rows_read_before_the_change_stay_and_the_rest_is_lost(tmp_path: Path) -> None:
    lines = [f'{{"x": {n}, "padding": "{"-" * 200}"}}' for n in range(40_000)]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    source, units = listed(Jsonl, tmp_path)
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
    store: FaultyS3, place: Location, change: Callable[[bytes], bytes], is_known: bool
) -> None:
    (place / "a").write_bytes(b"x" * 1000)
    [entry] = place.files()
    file = SourceFile(entry.uri, entry.version if is_known else "", entry.size)
    assert read_whole([file]) == [b"x" * 1000]
    store.rewrite = change
    [found] = read_whole([file])
    assert isinstance(found, SourceChanged)
    assert "a file of 1,000 bytes" in str(found)


def test_a_read_that_ends_early_is_noticed(store: FaultyS3, place: Location) -> None:
    (place / "a").write_bytes(bytes(range(100)) * 10)
    [file] = place.files()
    store.rewrite = lambda body: body[: len(body) * 7 // 10]
    with SourceFile(file.uri, file.version, file.size).open() as opened:
        assert opened.read(100) == bytes(range(100))
        with pytest.raises(SourceChanged, match=r"found \d+ bytes, expected 900, from byte 100 on"):
            opened.read()


def test_a_change_is_told_by_size_and_time_as_a_user_knows_them(tmp_path: Path) -> None:
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
