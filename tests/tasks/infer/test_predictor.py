"""What every model says of itself from its settings: the columns that it reads, its batches and its reservation."""

from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import JobError
from overnight.tasks.infer.predictor import CALLS_TO_CHOOSE_FROM, Batch, Predict, Predictor, imports


class Plain(Predictor):
    kind: Literal["plain"] = "plain"
    reading: list[str] | None = None
    libraries: tuple[str, ...] | None = None

    def inputs(self) -> list[str] | None:
        return self.reading

    def imports(self) -> tuple[str, ...] | None:
        return self.libraries

    def load(self) -> Predict:
        def predict(batch: Batch) -> dict[str, Any]:
            return {}

        return predict


@pytest.mark.parametrize(
    ("settings", "rows", "rows_at_once", "tunes"),
    [
        ({}, 16, 16, True),
        ({"num_gpus": 1}, 64, 64, True),
        ({"resources": {"NPU": 1}}, 64, 64, True),
        ({"resources": {"licence": 1}}, 16, 16, True),
        ({"batch_size": 3}, 3, 3, False),
        ({"batch_size": 3, "where": "x > 1"}, 3, 3 * CALLS_TO_CHOOSE_FROM, False),
    ],
)
def test_the_rows_of_a_call_follow_from_batch_size_device_and_condition(
    settings: dict[str, Any], rows: int, rows_at_once: int, tunes: bool
) -> None:
    model = Plain(**settings)
    assert (model.rows_per_call(), model.rows_at_once(rows), model.tunes_batch_size()) == (rows, rows_at_once, tunes)
    assert (model.describe_batch(), model.calls_at_once()) == (str(rows), 1)


def test_the_columns_that_a_model_reads_are_its_inputs_and_those_of_its_condition() -> None:
    assert Plain().reads() is None
    assert Plain(where="y > 1").reads() is None
    assert Plain(reading=["x"]).reads() == ["x"]
    assert Plain(reading=["x"], where="y > 1 and z is null").reads() == ["x", "y", "z"]


def test_only_names_of_accelerators_are_a_device() -> None:
    assert Plain(num_gpus=0.5, resources={"NPU": 1, "licence": 2}).accelerators() == {"GPU": 0.5, "NPU": 1}
    assert Plain().accelerators() == {}


def test_a_reserved_device_that_the_library_does_not_find_is_an_error_or_a_warning() -> None:
    with pytest.raises(JobError):
        Plain(num_gpus=1).fall_back("torch 9")
    allowed = Plain(num_gpus=1, cpu_fallback=True, name="small")
    assert allowed.fallback is None
    allowed.fall_back("torch 9")
    assert allowed.fallback is not None
    assert allowed.fallback.startswith("small: ")
    assert "torch 9" in allowed.fallback


def test_pins_belong_to_the_copy_and_do_not_change_the_settings() -> None:
    model = Plain()
    pinned = model.pinned({"model.bin": "sha256"})
    assert (dict(model.pins), dict(pinned.pins)) == ({}, {"model.bin": "sha256"})
    assert pinned.model_dump() == model.model_dump()


@pytest.mark.parametrize(
    "settings",
    [
        *({"workers": [3, 2]}, {"workers": 0}, {"batch_size": 0}, {"where": "x >"}, {"name": "1st"}, {"num_gpus": -1}),
        *({"placement": "colocated", **reserves} for reserves in ({"workers": 2}, {"num_cpus": 1}, {"num_gpus": 1})),
        {"placement": "colocated", "resources": {"NPU": 1}},
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Plain(**settings)
    assert Plain(workers=[2, 3]).workers == (2, 3)


def test_a_model_gets_writable_arrays_and_the_modules_of_all_models_are_imported() -> None:
    column = pa.chunked_array([[1, 2]])
    given = Plain().given("x", column)
    given[0] = 9
    assert (np.asarray(given).tolist(), column.to_pylist()) == ([9, 2], [1, 2])
    assert imports([Plain(), Plain(libraries=("a", "b")), Plain(libraries=("c",))]) == ["a", "b", "c"]
    assert [Plain().shown_name(), Plain(name="small").shown_name()] == ["plain", "small"]
