"""What counts as an input, and what listing says where there is none."""

import os
from pathlib import Path
from typing import Any

import pytest

from overnight.tasks.errors import InputError, JobError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.storage import skipped_files


def write(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"x")


def paths_at(place: object, partition: str = "all", **settings: Any) -> list[str]:
    return [file.path for file in list_inputs(Csv(path=str(place), **settings), partition)]


def test_it_recurses_sorts_and_skips_hidden_names_and_other_extensions(tmp_path: Path) -> None:
    hidden = ["_a.csv", "a/.b.csv", "_tmp/c.csv", "a/_x/d.csv"]
    write(tmp_path, "b.csv", "a/z.CSV", *hidden, "c.txt", "d.csv.gz", "e.csv.bak")
    assert paths_at(tmp_path) == ["a/z.CSV", "b.csv", "d.csv.gz"]


def test_a_single_file_is_a_source_and_a_hidden_folder_above_hides_nothing(tmp_path: Path) -> None:
    write(tmp_path, "_in/.x/a.csv")
    assert paths_at(f"{tmp_path}/_in/.x/") == paths_at(f"{tmp_path}/_in/.x/a.csv") == ["a.csv"]


def test_the_partition_and_the_environment_are_filled_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "date=2026-01-02/a.csv", "date=2026-01-03/b.csv")
    monkeypatch.setenv("LISTING_TEST_ROOT", str(tmp_path))
    assert paths_at("${LISTING_TEST_ROOT}/date={partition}", "2026-01-03") == ["b.csv"]
    monkeypatch.delenv("LISTING_TEST_ROOT")
    with pytest.raises(JobError, match="LISTING_TEST_ROOT is not set"):
        paths_at("${LISTING_TEST_ROOT}/date={partition}", "2026-01-03")


def test_nothing_there_and_nothing_fitting_are_told_apart(tmp_path: Path, bucket: str) -> None:
    for place in (f"{tmp_path}/nowhere", "s3://no-such-bucket-anywhere/raw/"):
        with pytest.raises(InputError, match="found nothing"):
            paths_at(place)
    write(tmp_path, "a.txt")
    for place in (str(tmp_path), f"s3://{bucket}/raw/"):
        with pytest.raises(InputError, match=r"expected files ending in \.csv.*allow_empty"):
            paths_at(place)
    with skipped_files.counting(), pytest.raises(InputError, match=r"passed over: 1 file; .*a\.txt"):
        paths_at(tmp_path)
    assert paths_at(tmp_path, allow_empty=True) == []


def test_a_version_changes_with_the_content(tmp_path: Path, s3: Any, bucket: str) -> None:
    write(tmp_path, "a.csv")
    source = Csv(path=str(tmp_path))
    before = list_inputs(source, "all")
    os.utime(tmp_path / "a.csv", ns=(1, 1_000_000_000))
    assert list_inputs(source, "all")[0].version != before[0].version
    versions = []
    for body in (b"1", b"2", b"1"):
        s3.put_object(Bucket=bucket, Key="a.csv", Body=body)
        versions.append(list_inputs(Csv(path=f"s3://{bucket}"), "all")[0].version)
    assert versions[0] == versions[2] != versions[1]


def test_what_is_passed_over_is_counted_and_named(tmp_path: Path) -> None:
    write(tmp_path, "a.csv", "_SUCCESS", ".tmp/b.csv", *[f"{n}.txt" for n in range(7)])
    os.mkfifo(tmp_path / "pipe.csv")
    (tmp_path / "gone.csv").symlink_to("nowhere")
    (tmp_path / "folder.csv").symlink_to(tmp_path)
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")).write_bytes(b"x")
    with skipped_files.counting() as passed:
        assert paths_at(tmp_path) == ["a.csv"]
    assert passed.found == {
        "name that begins with _ or .": {"files": 2, "names": [".tmp/b.csv", "_SUCCESS"]},
        "unknown extension": {"files": 7, "names": ["0.txt", "1.txt", "2.txt", "3.txt", "4.txt"]},
        "name that is not UTF-8": {"files": 1, "names": ["caf\\xe9.csv"]},
        "link to nothing": {"files": 1, "names": ["gone.csv"]},
        "loop of links": {"files": 1, "names": ["folder.csv"]},
        "FIFO": {"files": 1, "names": ["pipe.csv"]},
    }
    assert skipped_files.told(passed.found) == (
        "13 files; FIFO: pipe.csv; link to nothing: gone.csv; loop of links: folder.csv; "
        "name that begins with _ or .: .tmp/b.csv, _SUCCESS; name that is not UTF-8: caf\\xe9.csv; "
        "unknown extension: 0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more"
    )
