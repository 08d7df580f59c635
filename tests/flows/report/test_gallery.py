"""Cards of rows: pictures with boxes, sounds, texts and labels, within a budget of bytes."""

import base64
import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from overnight.flows.report.gallery import Card, Gallery, Group
from overnight.flows.report.row_sample import Roles
from overnight.tasks.storage.location import Location
from tests.flows.report.runs import job_of

GREY = np.full((300, 600, 3), 128, np.uint8)


def pixels(url: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/jpeg;base64,")))))


def images_job(folder: Path, **more: object):  # type: ignore[no-untyped-def]
    return job_of(folder, source={"kind": "images", "path": str(folder)}, **more)


def photo(folder: Path) -> str:
    Image.fromarray(GREY).save(folder / "a.png")
    return str(folder / "a.png")


def is_yellow(pixel: np.ndarray) -> bool:
    return bool(pixel[0] > 200 and pixel[2] < 100)


def test_a_row_of_images_shows_its_file_small_with_its_columns(tmp_path: Path) -> None:
    rows = pa.table(
        {"row_id": ["a.png"], "uri": [photo(tmp_path)], "x": [1], "predicted_label": ["cat"], "label": ["dog"]}
    )
    roles = Roles(prediction="predicted_label", truth="label")
    group = Gallery(images_job(tmp_path), roles).group("Random rows", rows)
    (card,) = group.cards
    assert pixels(card.picture).shape == (104, 208, 3)
    assert card.labels == [("label", "dog"), ("predicted_label", "cat"), ("x", "1")]
    assert card.differs
    assert card.alternative == "row a.png: label dog, predicted_label cat, x 1"
    assert not group.is_plain


def test_boxes_are_drawn_on_the_picture(tmp_path: Path) -> None:
    objects = {"boxes": [[[300.0, 0.0, 600.0, 300.0]]], "labels": [["dog"]], "scores": [[0.934]]}
    rows = pa.table({"row_id": ["a"], "uri": [photo(tmp_path)], **objects})
    group = Gallery(images_job(tmp_path)).group("r", rows)
    assert group.cards[0].labels == [("objects", "dog 0.934")]
    picture = pixels(group.cards[0].picture)
    assert is_yellow(picture[50, 104])
    assert not is_yellow(picture[50, 2])


def test_boxes_of_a_resized_image_are_moved_to_the_whole_one(tmp_path: Path) -> None:
    job = images_job(tmp_path, preprocess=[{"kind": "resize_image", "size": 150}])
    rows = pa.table({"row_id": ["a"], "uri": [photo(tmp_path)], "boxes": [[[0.0, 0.0, 150.0, 150.0]]]})
    picture = pixels(Gallery(job).group("r", rows).cards[0].picture)
    assert is_yellow(picture[50, 52])  # the crop is the middle of the image, from a quarter to three quarters
    assert not is_yellow(picture[50, 2])


@pytest.mark.parametrize(
    "columns",
    [
        {"boxes": [[[1.0, 2.0, 3.0]]]},
        {"boxes": ["two boxes"]},
        {"boxes": [[None, [1.0, 2.0, 3.0, 4.0]]]},
        {"boxes": [[[1.0, 2.0, None, 4.0]]], "labels": [["dog"]], "scores": [[None]]},
        {"boxes": [[[1.0, 2.0, 3.0, 4.0]]], "labels": ["dog"], "scores": [0.5]},
    ],
    ids=str,
)
def test_a_column_of_other_boxes_leaves_the_picture(tmp_path: Path, columns: dict[str, object]) -> None:
    rows = pa.table({"row_id": ["a"], "uri": [photo(tmp_path)], **columns})
    assert Gallery(images_job(tmp_path)).group("r", rows).cards[0].picture


@pytest.mark.parametrize("uri", ["a\0b.png", "http://[::1/a.png"])
def test_a_name_that_no_file_has_leaves_the_card(tmp_path: Path, uri: str) -> None:
    gallery = Gallery(images_job(tmp_path))
    assert not gallery.failed_row({"row_id": "a", "uri": uri}).picture
    assert not gallery.group("r", pa.table({"row_id": ["a"], "uri": [uri]})).cards[0].picture


def test_pictures_end_with_the_budget(tmp_path: Path) -> None:
    gallery = Gallery(job_of(tmp_path), left_bytes=1500)
    assert gallery.picture(GREY)
    assert not gallery.picture(np.random.default_rng(0).integers(0, 255, (300, 300, 3), np.uint8))


def test_a_recording_can_be_played_if_it_is_small(tmp_path: Path) -> None:
    job = job_of(tmp_path, source={"kind": "audio", "path": str(tmp_path)})
    (tmp_path / "a.wav").write_bytes(b"RIFF")
    (tmp_path / "b.wav").write_bytes(b"R" * 300_000)
    rows = pa.table({"row_id": ["a", "b"], "uri": [str(tmp_path / "a.wav"), str(tmp_path / "b.wav")]})
    group = Gallery(job).group("r", rows)
    assert [card.sound for card in group.cards] == ["data:audio/wav;base64,UklGRg==", ""]


def test_failed_rows_show_their_picture_if_it_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "cut.png").write_bytes(b"no image")
    rows = [{"row_id": uri, "uri": uri} for uri in (photo(tmp_path), str(tmp_path / "cut.png"), "/nowhere.png")]
    gallery = Gallery(images_job(tmp_path))
    cards = [gallery.failed_row(row) for row in rows]
    assert [bool(card.picture) for card in cards] == [True, False, False]


def test_rows_of_short_values_are_a_table_and_long_texts_are_cards() -> None:
    assert Group("t", [Card("a", labels=[("x", "1")]), Card("b", labels=[("y", "2")])]).names == ["x", "y"]
    assert Group("t", [Card("a", labels=[("x", "1")])]).is_plain
    assert not Group("t", [Card("a", texts=[("x", "a long text")])]).is_plain


def test_the_short_texts_of_a_column_look_like_its_long_ones(tmp_path: Path) -> None:
    gallery = Gallery(job_of(tmp_path))
    both = gallery.group("r", pa.table({"row_id": ["a", "b"], "text": ["x" * 50, "short"], "mood": ["good", "bad"]}))
    short = gallery.group("r", pa.table({"row_id": ["b"], "text": ["short"], "mood": ["bad"]}))
    for card in (both.cards[1], short.cards[0]):
        assert (card.texts, card.labels) == ([("text", "short")], [("mood", "bad")])
    assert not short.is_plain


def test_no_file_is_read_after_the_time_for_drawings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Location] = []
    monkeypatch.setattr(Location, "open", reads.append)
    gallery = Gallery(job_of(tmp_path, source={"kind": "pdf", "path": str(tmp_path)}), left_seconds=0.0)
    [card] = gallery.group("r", pa.table({"row_id": ["a"], "uri": ["s3://big/a.pdf"], "page": [1]})).cards
    assert (card.picture, reads) == ("", [])
