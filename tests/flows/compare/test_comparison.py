"""Two sides: the column that counts, accuracy, rows of one side, and real regressions of a trained model."""

from pathlib import Path

import pytest

from overnight.flows.compare.comparison import Comparison, compare_jobs
from overnight.flows.compare.sides import Drawing
from overnight.flows.job.loading import load_job
from overnight.tasks.errors import JobError
from tests.flows.compare.sides_by_hand import compared, labelled
from tests.flows.compare.test_sides import csv_job
from tests.flows.compare.trained import needs_cifar, write_cifar_job


def test_the_accuracy_of_both_sides_counts_what_only_one_has_right(tmp_path: Path) -> None:
    truth = ["cat"] * 10
    found = compared(
        tmp_path, labelled(["cat"] * 8 + ["dog"] * 2, label=truth), labelled(["dog"] * 4 + ["cat"] * 6, label=truth)
    )
    assert found.accuracy
    assert (found.accuracy.a, found.accuracy.b, found.accuracy.only_a, found.accuracy.only_b) == (8, 6, 4, 2)
    assert found.same == ["label"]


def test_only_rows_with_a_true_label_have_an_accuracy_and_only_columns_of_labels(tmp_path: Path) -> None:
    a = labelled(["cat"] * 4, label=["cat", "dog", None, None], tags=[["x"]] * 4)
    b = labelled(["cat"] * 4, label=["cat", "dog", None, None], tags=[["y"]] * 4)
    found = compared(tmp_path, a, b).accuracy
    assert found
    assert (found.rows, found.a) == (2, 1)
    assert compared(tmp_path, a, b, "tags").accuracy is None


def test_auto_draws_on_until_enough_rows_pass_the_filter(tmp_path: Path) -> None:
    half = {"kind": "filter_rows", "expression": "n % 2 = 0"}
    job = csv_job(tmp_path, half, lines=1500)
    found = compare_jobs([("a", job), ("b", job)], "all", Drawing())
    assert found.rows_needed
    assert found.rows_needed - 40 < found.rows < 750


def test_rows_of_one_side_are_counted_with_those_that_the_other_quarantined(tmp_path: Path) -> None:
    found = compared(tmp_path, labelled(["cat"] * 5), labelled(["cat"] * 3), **{"4": "ValueError: bad"})
    assert (found.rows, found.only_a.rows, found.only_a.quarantined, found.only_a.examples) == (3, 2, 1, ["3", "4"])
    assert found.only_b.rows == 0


def test_a_predicted_label_counts_before_a_column_that_differs_more_and_a_named_one_before_both(tmp_path: Path) -> None:
    a, b = labelled(["cat", "dog"], note=["x", "y"]), labelled(["cat", "cat"], note=["y", "x"])
    assert compared(tmp_path, a, b).main.name == "predicted_label"  # type: ignore[union-attr]
    assert compared(tmp_path, a, b, "note").main.name == "note"  # type: ignore[union-attr]
    with pytest.raises(JobError, match=r"expected one of predicted_label, note, found not .did you mean note"):
        compared(tmp_path, a, b, "not")


def test_rows_that_differ_more_take_more_rows_but_never_more_than_there_are(tmp_path: Path) -> None:
    found = compared(tmp_path, labelled(["cat"] * 4), labelled(["cat", "cat", "cat", "dog"]))
    assert found.rows_needed
    assert found.rows_needed > 4000
    assert found.has_enough  # all four rows were compared


def run_both(folder: Path, *settings: str, rows: int | None = 60) -> Comparison:
    path = write_cifar_job(folder)
    jobs = [("as it is", load_job(path)), ("changed", load_job(path, settings))]
    return compare_jobs(jobs, "all", Drawing(rows))


@needs_cifar
@pytest.mark.slow
def test_damaged_weights_are_seen_and_the_same_model_agrees_with_itself(tmp_path: Path) -> None:
    found = run_both(tmp_path, "inference.0.kwargs.damage=0.15", rows=None)
    assert (found.rows, found.total) == (100, 100)  # auto takes all, because a difference of 2 % takes more
    assert found.accuracy
    assert found.main
    assert found.main.agreement.interval[1] < 0.98
    assert found.accuracy.a > found.accuracy.b
    assert {column.name: column.kind for column in found.columns}["embedding"] == "vector"
    assert all(side.rows_per_second for side in (found.a, found.b))
    assert not (tmp_path / "out").exists()


@needs_cifar
@pytest.mark.slow
def test_the_same_model_agrees_with_itself_whatever_the_batch_size(tmp_path: Path) -> None:
    found = run_both(tmp_path, "inference.0.batch_size=7")
    assert found.main
    assert (found.rows, found.main.agreement.share) == (60, 1.0)


@needs_cifar
@pytest.mark.slow
def test_a_changed_crop_is_seen(tmp_path: Path) -> None:
    crop = "preprocess=[{kind: resize_image, size: 48}, {kind: python, target: 'cropped:centre'}]"
    (tmp_path / "cropped.py").write_text(
        "def centre(batch):\n    return {'image': [image[8:40, 8:40] for image in batch['image']]}\n"
    )
    found = run_both(tmp_path, crop)
    assert found.main
    assert found.main.agreement.share < 0.95  # type: ignore[operator]
    assert found.rows == 60
