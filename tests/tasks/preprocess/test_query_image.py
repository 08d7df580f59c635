"""A query's image, beside the same image as a row of a source."""

import io

import numpy as np
import pytest
from PIL import Image

from overnight.tasks.errors import JobError
from overnight.tasks.preprocess.images.scaling import resize_image
from overnight.tasks.preprocess.query_image import query_image, readable_image
from overnight.tasks.preprocess.steps.decode_image import DecodeImage
from overnight.tasks.preprocess.steps.deduplicate import Deduplicate
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.preprocess.steps.resize_image import ResizeImage

PIXELS = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)


def png() -> bytes:
    file = io.BytesIO()
    Image.fromarray(PIXELS).save(file, "PNG")
    return file.getvalue()


def test_a_querys_image_goes_through_the_jobs_steps_but_is_not_filtered() -> None:
    rows = [
        FilterRows(expression="label == 'dog'"),
        Deduplicate(columns=["url"]),
        DeriveColumns(columns={"b": "n > 1"}),
    ]
    found = query_image("q.png", png(), [*rows, ResizeImage(size=16)])
    np.testing.assert_array_equal(found, resize_image(PIXELS, 16, 16, "bicubic")[None])


def test_without_a_step_that_decodes_the_image_keeps_its_size() -> None:
    np.testing.assert_array_equal(query_image("q.png", png(), []), PIXELS[None])
    np.testing.assert_array_equal(query_image("q.png", png(), [DecodeImage()]), PIXELS[None])


def test_what_is_no_whole_image_is_an_error_that_names_it() -> None:
    for content, words in ((png()[:500], "a whole PNG image of 60 x 40"), (b"a text", r"an image \(AVIF")):
        with pytest.raises(JobError, match=f"image q.png: expected {words}"):
            query_image("q.png", content, [ResizeImage(size=16)])
    assert readable_image(b"a text") is None
    np.testing.assert_array_equal(readable_image(png()), PIXELS)
