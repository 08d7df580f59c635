"""Batches that show less than the trial did get its types; no value changes."""

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.rows.declared_types import as_declared

FOUND = pa.list_(pa.struct([("score", pa.float32()), ("label", pa.string())]))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[], None], FOUND),
        ([None, None], FOUND),
        ([None], pa.string()),
        (pa.array([[{"label": "a"}], []]), FOUND),
        ([{"a": []}], pa.struct([("a", pa.list_(pa.int64())), ("b", pa.binary())])),
    ],
)
def test_values_that_lack_types_or_fields_get_those_of_the_trial(values: object, kind: pa.DataType) -> None:
    found = as_declared(values, kind)
    assert found.type == kind
    wider = pa.array(pa.array(values).to_pylist(), kind)
    assert found.equals(wider)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2**60], pa.float64()),
        ([["a"]], pa.list_(pa.int64())),
        ([{"new": 1}], pa.struct([("a", pa.int64())])),
        (np.array([1.5], np.float32), pa.float64()),
        ([object()], pa.string()),
    ],
)
def test_values_of_other_types_stay_as_they_are(values: object, kind: pa.DataType) -> None:
    found = as_declared(values, kind)
    assert found is values or found.equals(pa.array(values))
