"""Audio, video and PDF files: a row each, whatever they hold; what they mean is for a step to say."""

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.media_files import Audio, Images, Pdf, Video
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.uris import Uris
from overnight.tasks.ingest.sources.whole_files import WholeFiles
from tests.tasks.ingest.conftest import Read, read_all

KINDS = [(Audio, "audio", ".wav"), (Audio, "audio", ".MP3"), (Video, "video", ".mp4"), (Pdf, "pdf", ".pdf")]


@pytest.mark.parametrize(("kind", "column", "extension"), KINDS)
def test_a_file_is_its_bytes_named_by_its_path_and_labelled_by_its_folder(
    read: Callable[..., Read], kind: type[WholeFiles], column: str, extension: str
) -> None:
    # Empty, cut off or of another format: nothing here looks into a file; what decodes it quarantines it.
    files = {f"one/a{extension}": b"RIFF\xff", f"two/b{extension}": b"", f"two/c{extension}": b"%PDF-1.7\n%%E"}
    found = read(kind, {**files, "two/notes.txt": b"no such file"}, label_from="parent")
    assert {name: row[column] for name, row in found.good.items()} == files
    assert found.column("label") == ["one", "two", "two"]


@pytest.mark.parametrize(("kind", "extension"), [(Images, ".png"), (Audio, ".wav"), (Text, ".txt"), (Pdf, ".pdf")])
def test_a_file_beyond_its_kind_s_bound_is_quarantined_alone_and_not_read(
    read: Callable[..., Read], tmp_path: Path, kind: type[WholeFiles], extension: str
) -> None:
    (tmp_path / "source").mkdir()
    with (tmp_path / f"source/large{extension}").open("wb") as file:
        file.truncate(5 * 2**30)  # a hole
    found = read(kind, {f"small{extension}": b"x"})
    assert list(found.good) == [f"small{extension}"]
    bound = kind.model_fields["max_file_bytes"].default
    assert found.bad[f"large{extension}"] == (
        f"expected a file of at most max_file_bytes = {bound:,} bytes, found 5,368,709,120. Raise "
        "source.max_file_bytes if a worker's memory holds several of that size"
    )


def test_what_lies_at_a_uri_is_held_to_the_bound_once_it_is_fetched(read: Callable[..., Read], tmp_path: Path) -> None:
    (tmp_path / "two.bin").write_bytes(b"xx")
    (tmp_path / "three.bin").write_bytes(b"xxx")
    lines = f"uri\n{tmp_path}/two.bin\n{tmp_path}/three.bin\n".encode()
    found = read(Uris, {"list.csv": lines}, content="bytes", max_file_bytes=2)
    assert (list(found.good), list(found.bad)) == (["list.csv#0"], ["list.csv#1"])


@pytest.mark.parametrize(("kind", "column", "extension"), KINDS)
def test_the_column_is_of_one_type_that_holds_more_than_2_gb(
    tmp_path: Path, kind: type[WholeFiles], column: str, extension: str
) -> None:
    (tmp_path / f"a{extension}").write_bytes(b"x")
    source = kind(path=str(tmp_path))
    [block] = source.read(source.units(list_inputs(source, "all")), None)
    assert block.schema.field(column).type == pa.large_binary()


@pytest.mark.parametrize(("kind", "column", "extension"), KINDS)
def test_what_is_gone_or_changed_is_quarantined_alone(
    tmp_path: Path, kind: type[WholeFiles], column: str, extension: str
) -> None:
    for name in ("whole", "gone", "changed"):
        (tmp_path / f"{name}{extension}").write_bytes(b"x")
    source = kind(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    (tmp_path / f"gone{extension}").unlink()
    (tmp_path / f"changed{extension}").write_bytes(b"xyz")
    found = read_all(source, units)
    assert list(found.good) == [f"whole{extension}"]
    assert {name.partition(".")[0] for name in found.bad} == {"gone", "changed"}
    assert found.types[f"gone{extension}"] == "SourceVanished"
    assert found.types[f"changed{extension}"] == "SourceChanged"


@pytest.mark.parametrize(("kind", "column", "extension"), KINDS)
def test_a_folder_of_other_files_says_what_was_expected(
    tmp_path: Path, kind: type[WholeFiles], column: str, extension: str
) -> None:
    (tmp_path / "notes.txt").write_bytes(b"x")
    with pytest.raises(InputError, match=rf"expected files ending in .*\{extension.lower()}"):
        list_inputs(kind(path=str(tmp_path)), "all")


def test_files_of_one_list_may_be_on_several_storages(tmp_path: Path, s3: Any) -> None:
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="in/cat/b.png", Body=b"from s3")
    for name in ("dog/a.png", "dog/c.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    paths = [f"s3://{bucket}/in/", f"{tmp_path}/*/[ac].png"]
    found = read_all(Images(path=paths, label_from="parent"))
    assert {name: (row["image"], row["label"]) for name, row in found.good.items()} == {
        f"{tmp_path}/dog/a.png": (b"dog/a.png", "dog"),
        f"{tmp_path}/dog/c.png": (b"dog/c.png", "dog"),
        f"s3://{bucket}/in/cat/b.png": (b"from s3", "cat"),
    }
