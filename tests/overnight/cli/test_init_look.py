"""What `overnight init` sees of the inputs, and the job that follows from it."""

import gzip
import io
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from overnight.cli.init_choices import Answers, task_choices
from overnight.cli.init_look import MAX_FILES, look
from overnight.cli.init_templates import create
from overnight.flows.job.loading import load_job
from overnight.flows.job.model import Job


def touch(file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch()


def written(folder: Path, path: str, work: str, **more: str) -> Job:
    """The job that init writes for what it sees at a path, with usual answers."""
    found = look(path)
    assert found.source
    [job_file, *_] = create(Answers(folder, "it", path, found.source, work, "a/b", inputs=found, **more))
    return load_job(job_file)


def test_the_kind_of_most_files_decides_and_the_others_are_named(tmp_path: Path) -> None:
    for name in ("a.csv", "b.JSONL", "c.jsonl", "d.unknown", "e"):
        touch(tmp_path / "date=2026-01-01" / name)
    found = look(f"{tmp_path}/date={{partition}}/")
    assert found.source == "jsonl"
    assert found.notes[0] == (
        "found 2 jsonl, 1 csv in 1 partitions; a run passes over 2 others: 1 with .unknown, 1 with no ending. "
        "One job reads one kind; --source names another."
    )
    assert look(f"{tmp_path}/date={{partition}}/", "csv").source == "csv"


@pytest.mark.parametrize(
    ("path", "note"),
    [
        ("date=2026-01-01/a.unknown", "found no file of a known kind at .*; a run passes over 1 others: 1 with .unkn"),
        ("gone", "cannot look at .*gone"),
        ("{partition}/", "expected a day in place of {partition}, found date=2026-01-01/a.unknown below"),
        ("${NOT_SET}/", "NOT_SET is not set"),
    ],
)
def test_inputs_that_cannot_be_looked_at_are_a_note_and_a_question(tmp_path: Path, path: str, note: str) -> None:
    touch(tmp_path / "date=2026-01-01/a.unknown")
    found = look(f"{tmp_path}/{path}")
    assert found.source is None
    assert re.search(note, found.notes[0])


@pytest.mark.parametrize(
    ("path", "files", "labelled"),
    [
        ("in", ["a.png", "b.png"], False),
        ("in", ["cat/a.png", "dog/b.png"], True),
        ("in/*/*.png", ["cat/a.png", "dog/b.png"], True),
        ("in/cat/a.png", ["cat/a.png"], False),
        ("in/date={partition}", ["date=2026-01-01/a.png"], False),
        ("in/date={partition}/", ["date=2026-01-01/cat/a.png"], True),
        ("in/date={partition}/images/", ["date=2026-01-01/images/a.png"], False),
    ],
)
def test_folders_are_labels_only_where_there_are_folders(
    tmp_path: Path, path: str, files: list[str], labelled: bool
) -> None:
    for name in files:
        touch(tmp_path / "in" / name)
    job = written(tmp_path, f"{tmp_path}/{path}", "none")
    assert job.source.label_from == ("parent" if labelled else None)


def test_a_csv_file_without_a_header_line_gets_names_and_the_longest_texts_are_the_text(tmp_path: Path) -> None:
    (tmp_path / "news.csv").write_text('3,"Short, but","A text that goes on\nand on"\n4,Other,Another text\n')
    job = written(tmp_path, f"{tmp_path}/news.csv", "text_embedding")
    assert job.source.column_names == ["column_1", "column_2", "column_3"]
    assert job.inference[0].text_column == "column_3"
    assert 'Its first line: 3,"Short, but","A text that goes on' in (tmp_path / "it.yaml").read_text()


@pytest.mark.parametrize(
    ("name", "text", "settings"),
    [
        ("a.csv", "id,review\n1,good\n", {}),
        ("a.csv", "id;review\n1;good, very\n2;bad\n", {"delimiter": ";"}),
        ("a.tsv", "id\treview\n1\tgood\n", {}),
        ("a.csv", "id\treview\n1\tgood\n", {"delimiter": "\t"}),
        ("a.csv", "title,review\nBrazil,Good\nAlien,Bad, but long\n", {}),
        ("a.csv", "It is what I like about it\nBad\n", {"column_names": ["column_1"]}),
        ("a.csv", "pictures/a.jpg,cat\npictures/b.jpg,dog\n", {"column_names": ["column_1", "column_2"]}),
        ("a.csv", "", {}),
    ],
)
def test_the_form_of_a_csv_file_is_seen(tmp_path: Path, name: str, text: str, settings: dict[str, Any]) -> None:
    (tmp_path / name).write_text(text)
    assert look(f"{tmp_path}/{name}").settings == settings


def test_a_long_compressed_table_is_read_at_its_beginning(tmp_path: Path) -> None:
    lines = "id|says\n" + "".join(f"{row}|words {row * 7919 % 10007} of a row\n" for row in range(50_000))
    with gzip.open(tmp_path / "long.csv.gz", "wt") as file:
        file.write(lines)
    found = look(f"{tmp_path}")
    assert (found.settings, found.texts, found.rows) == ({"delimiter": "|"}, ("says",), 0)


def test_a_list_of_images_is_read_as_images_unless_the_source_cannot_read_it(tmp_path: Path) -> None:
    (tmp_path / "list.csv").write_text("photo,of\na.jpg,cat\nhttps://host/b.PNG?size=2,dog\n")
    job = written(tmp_path, f"{tmp_path}/list.csv", "image_embedding")
    assert (job.source.kind, job.source.uri_column, job.source.keep) == ("uris", "photo", ["of"])
    (tmp_path / "other.csv").write_text("photo;of\na.jpg;cat\n")
    found = look(f"{tmp_path}/other.csv")
    assert found.image_uris == "photo"
    assert "image_embedding" not in task_choices("csv", found)


def test_images_in_a_parquet_file_are_decoded(tmp_path: Path) -> None:
    content = io.BytesIO()
    Image.new("RGB", (4, 4)).save(content, "PNG")
    photos = {"photo": [{"bytes": content.getvalue(), "path": "a.png"}] * 9, "key": [b"no image"] * 9}
    pq.write_table(pa.table(photos), tmp_path / "photos.parquet")
    job = written(tmp_path, f"{tmp_path}/photos.parquet", "image_embedding")
    assert [step.kind for step in job.preprocess] == ["rename_columns", "resize_image"]
    assert (job.preprocess[0].columns, job.preprocess[1].size) == ({"photo": "image"}, 4)
    assert job.checks.min_rows == 4
    for name, column in (("photo", "image"), ("key", "key")):
        inputs = look(f"{tmp_path}/photos.parquet")
        assert Answers(tmp_path, "it", "in", "parquet", "python", "", name, inputs).column == column


@pytest.mark.parametrize(
    ("sizes", "size"), [([(28, 20), (24, 28)], 28), ([(28, 28), (900, 20)], 224), ([(28, 28), None], 224)]
)
def test_small_pictures_keep_their_size(tmp_path: Path, sizes: list[tuple[int, int] | None], size: int) -> None:
    for number, measures in enumerate(sizes):
        touch(tmp_path / "in" / f"{number}.png")
        if measures:
            Image.new("RGB", measures).save(tmp_path / "in" / f"{number}.png")
    [step] = written(tmp_path, f"{tmp_path}/in", "image_embedding").preprocess
    assert step.size == size


def test_a_folder_of_thumbnails_does_not_decide_the_size_of_photos(tmp_path: Path) -> None:
    for number in range(12):
        file = tmp_path / "in" / ("a-thumbnails" if number < 6 else "photos") / f"{number:02}.png"
        touch(file)
        Image.new("RGB", (28, 28) if number < 6 else (900, 600)).save(file)
    [step] = written(tmp_path, f"{tmp_path}/in", "image_embedding").preprocess
    assert step.size == 224


def test_half_of_the_rows_that_are_there_is_the_least_that_a_run_publishes(tmp_path: Path) -> None:
    for day, count in (("2026-01-01", 7), ("2026-01-02", 30)):
        for row in range(count):
            touch(tmp_path / day / f"{row}.png")
    assert written(tmp_path, f"{tmp_path}/{{partition}}/", "none").checks.min_rows == 3
    for row in range(MAX_FILES + 1):
        touch(tmp_path / "many" / f"{row}.txt")
    found = look(f"{tmp_path}/many")
    assert (found.rows, found.notes[0]) == (MAX_FILES, "found among the first files 1,000 text.")


@pytest.mark.parametrize(
    ("others", "second_day", "rows"),
    [(["0_about.txt"], 200, MAX_FILES - 100), (["2026-01-03/0.txt", "2026-01-03/1.txt"], 99, 99)],
    ids=["a file of no day", "a later day without images"],
)
def test_a_partition_whose_files_are_not_all_listed_does_not_decide_the_least_rows(
    tmp_path: Path, others: list[str], second_day: int, rows: int
) -> None:
    for day, count in (("2026-01-01", MAX_FILES - 100), ("2026-01-02", second_day)):
        for row in range(count):
            touch(tmp_path / "in" / day / f"{row:03}.png")
    for name in others:
        touch(tmp_path / "in" / name)
    found = look(f"{tmp_path}/in/{{partition}}/")
    assert found.notes[0].startswith("found among the first files ")
    assert found.rows == rows


def test_inputs_on_an_object_store_are_looked_at(s3: Any) -> None:
    s3.create_bucket(Bucket="inputs-of-init")
    s3.put_object(Bucket="inputs-of-init", Key="in/2026-01-01/a.csv", Body=b"id;says\n1;good\n")
    found = look("s3://inputs-of-init/in/{partition}/")
    assert (found.source, found.settings, found.rows) == ("csv", {"delimiter": ";"}, 1)


def test_the_rows_of_a_file_are_counted_only_if_its_head_is_all_of_it(tmp_path: Path) -> None:
    for count, rows in ((10, 10), (20_000, 0)):
        (tmp_path / "list.csv").write_text("photo,of\r" + "a.jpg,cat\r" * count, newline="")
        assert look(f"{tmp_path}/list.csv").rows == rows
