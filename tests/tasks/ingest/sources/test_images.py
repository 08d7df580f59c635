"""Image files by any name, local and on S3."""

import uuid
from collections.abc import Callable
from typing import Any

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.media_files import Images
from tests.tasks.ingest.conftest import Read, read_all

ODD_NAMES = [
    "a b", "a#1", "a%20b", "a?b", "a::b", "a[x]", "[ab]", "a*b", "ünïcödé-図", "a\nb", "{partition}", "${HOME}",
    "~root", "a\\b", "a+b&c=d;e", "http:a", "C:a", "'q\"", "-rf", "a .", "x" * 200, "a,b", "b?versionId=1",
]  # fmt: skip

NOT_ON_S3 = ["a\nb", "b?versionId=1"]  # the test server refuses the one; s3fs takes the other for a version


def test_an_image_is_its_bytes_named_by_its_path_and_labelled_by_its_folder(read: Callable[..., Read]):
    found = read(Images, {"cat/a.PNG": b"one", "dog/x/b.jpeg": b"", "notes.txt": b"no image"}, label_from="parent")
    assert {name: (row["image"], row["label"]) for name, row in found.good.items()} == {
        "cat/a.PNG": (b"one", "cat"),
        "dog/x/b.jpeg": (b"", "x"),
    }


def test_files_of_any_name_are_read_from_disk(read: Callable[..., Read]):
    files = {f"{name}/{name}.png": name.encode() for name in ODD_NAMES}
    found = read(Images, files, label_from="parent")
    assert {name: row["image"] for name, row in found.good.items()} == files
    assert {row["label"] for row in found.good.values()} == set(ODD_NAMES)


def test_files_of_any_name_are_read_from_s3_and_their_uris_open_them(s3: Any):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    files = {f"in/{name}/{name}.png": name.encode() for name in ODD_NAMES if name not in NOT_ON_S3}
    for name, content in files.items():
        s3.put_object(Bucket=bucket, Key=name, Body=content)
    s3.put_object(Bucket=bucket, Key="in/folder/", Body=b"")
    s3.put_object(Bucket=bucket, Key="input-of-another-job/a.png", Body=b"")
    found = read_all(Images(path=f"s3://{bucket}/in"))
    assert {f"in/{name}": row["image"] for name, row in found.good.items()} == files
    assert {row["uri"] for row in found.good.values()} == {f"s3://{bucket}/{name}" for name in files}


def test_more_files_than_are_fetched_at_once_all_arrive(read: Callable[..., Read]):
    files = {f"{i:03d}.png": b"%d" % i for i in range(200)}
    assert {name: row["image"] for name, row in read(Images, files).good.items()} == files


def test_what_vanished_is_quarantined_alone_and_what_is_no_image_is_passed_over(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        (tmp_path / name).write_bytes(b"x")
    (tmp_path / "broken-link.png").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder.png").symlink_to(tmp_path)
    source = Images(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    (tmp_path / "b.png").unlink()
    found = read_all(source, units)
    assert list(found.good) == ["a.png", "c.png"]
    assert set(found.bad) == {"b.png"}


def test_a_folder_of_images_that_is_gone_is_quarantined_image_by_image(s3: Any):
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a.png", Body=b"x")
    source = Images(path=f"s3://{bucket}/")
    units = source.units(list_inputs(source, "all"))
    s3.delete_object(Bucket=bucket, Key="a.png")
    assert list(read_all(source, units).bad) == ["a.png"]
