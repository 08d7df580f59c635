"""Values that the user's code returns: each is taken exactly and as of its return, or refused with its reason."""

import asyncio
import dataclasses
import datetime
import decimal
import enum
import io
import pathlib
import threading
import types
import uuid
from collections import UserDict
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
import torch
from PIL import Image

from overnight.tasks.errors import ContractError, InvalidValues
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.rows import apply, blocks, user_function
from overnight.tasks.rows.tensors import to_arrow, to_numpy
from overnight.tasks.workers import retry
from tests.contracts.models import user_models
from tests.tasks.blocks import source_block

ROWS = pa.table({"row_id": ["a", "b", "c"], "x": [1, 2, 3]})
HOURS = datetime.timezone(datetime.timedelta(hours=2))
NAIVE, AWARE = datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=HOURS)
NANOSECOND = pd.Timestamp("2026-01-01 00:00:00.000000001")
BIG = 2**70


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Record:
    label: str
    score: float


class Pair(NamedTuple):
    label: str
    score: float


class Model(pydantic.BaseModel):
    label: str
    price: decimal.Decimal
    inner: Record | None = None


class Frame:
    """A table with Arrow's stream protocol, as Polars has it: texts are views."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def columns(function: Callable[[Any], Any]) -> dict[str, pa.Array]:
    outcome = user_function.outcome_of(function, ROWS, "infer", "my_models:Model")
    assert not outcome.failed
    return {name: to_arrow(values) for name, values in outcome.columns.items()}


def column(values: Any) -> pa.Array:
    return columns(lambda batch: {"y": values})["y"]


def masked(values: Any, mask: Any = (0, 1, 0)) -> Any:
    return np.ma.masked_array(values, mask)


def same(value: Any, expected: Any = None) -> tuple[Any, Any]:
    """A row's value that is returned for the first and the last row, and null for the second."""
    taken = value if expected is None else expected
    return [value, None, value], [taken, None, taken]


DAY = np.datetime64("2026-01-02")
TAKEN: dict[str, tuple[Any, Any]] = {
    "a dataclass": same(Record("cat", 0.5), {"label": "cat", "score": 0.5}),
    "a named tuple": same(Pair("cat", 0.5), {"label": "cat", "score": 0.5}),
    "an object of pydantic": same(
        Model(label="a", price="1.10", inner=Record("b", 0.5)),
        {"label": "a", "price": decimal.Decimal("1.10"), "inner": {"label": "b", "score": 0.5}},
    ),
    "a mapping": same(UserDict(a=1), {"a": 1}),
    "a proxy": same(types.MappingProxyType({"a": Colour.RED}), {"a": "red"}),
    "a set": same({"b", "a"}, ["a", "b"]),
    "a tuple": same((1, 2), [1, 2]),
    "an enum": same(Colour.RED, "red"),
    "a path": same(pathlib.PurePosixPath("a/b"), "a/b"),
    "a uuid": same(uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
    "a memoryview": same(memoryview(b"xyz")[::2], b"xz"),
    "a decimal": same(decimal.Decimal("1.10")),
    "a time with a zone": same(AWARE),
    "objects in a list": same([Record("cat", 0.5)], [{"label": "cat", "score": 0.5}]),
    "an array in a dict": same({"box": np.zeros((1, 2), np.float32)}, {"box": [[0.0, 0.0]]}),
    "a day in a dict": same({"day": DAY}, {"day": datetime.date(2026, 1, 2)}),
    "a nullable column in a dict": same({"v": pd.Series([1, None], dtype="Int64")}, {"v": [1, None]}),
    "NA of pandas in a list": same([1, pd.NA, pd.NaT], [1, None, None]),
    "NaT of pandas": ([NANOSECOND, pd.NaT, NANOSECOND], [NANOSECOND, None, NANOSECOND]),
    "NaN beside texts": (["a", float("nan"), "b"], ["a", None, "b"]),
    "masked numbers": (masked([1, 2, 3]), [1, None, 3]),
    "masked objects": (masked(np.array([1, "b", 3], object)), [1, None, 3]),
    "masked": ([1.5, np.ma.masked, 2.5], [1.5, None, 2.5]),
    "masked values in a list": same([1, np.ma.masked], [1, None]),
    "a masked array in a dict": same({"a": masked([1, 2], [0, 1])}, {"a": [1, None]}),
    "another byte order": (np.array([1, 2, 3], ">i4"), [1, 2, 3]),
    "bytes of numpy": (np.array([b"a", b"b\0c", b""]), [b"a", b"b\0c", b""]),
    "structured numbers": (np.ones(3, [("a", "i4")]), [{"a": 1}] * 3),
    "nullable numbers": (pd.Series([2**53 + 1, None, 3], dtype="Int64"), [2**53 + 1, None, 3]),
    "categories": (pd.Series(["a", None, "a"], dtype="category"), ["a", None, "a"]),
    "a sparse column": (pd.arrays.SparseArray([0, 0, 1]), [0, 0, 1]),
    "decimals of several scales": (
        [decimal.Decimal("1.1"), decimal.Decimal("2.123"), None],
        [decimal.Decimal("1.100"), decimal.Decimal("2.123"), None],
    ),
    "quantised numbers": (torch.quantize_per_tensor(torch.tensor([1.0, 2, 3]), 0.5, 0, torch.quint8), [1.0, 2.0, 3.0]),
    "kinds that differ between fields": same([{"a": NAIVE, "b": AWARE, "c": "x", "d": b"x"}]),
}


@pytest.mark.parametrize(("values", "expected"), TAKEN.values(), ids=TAKEN)
@pytest.mark.filterwarnings("ignore")
def test_a_value_is_taken_with_all_that_it_holds(values: Any, expected: Any) -> None:
    assert column(values).to_pylist() == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (masked(np.ones((3, 2)), [[0, 0], [1, 1], [0, 0]]), [[1, 1], None, [1, 1]]),
        (torch.nested.nested_tensor([torch.zeros(1), torch.zeros(2), torch.zeros(3)]), [[0], [0, 0], [0, 0, 0]]),
        (torch.arange(6.0, requires_grad=True).reshape(3, 2), [[0, 1], [2, 3], [4, 5]]),
        (torch.eye(3).to_sparse(), np.eye(3).tolist()),
        ([row * 2 for row in torch.arange(6.0, requires_grad=True).reshape(3, 2)], [[0, 2], [4, 6], [8, 10]]),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_arrays_of_rows_are_taken_with_their_shapes(values: Any, expected: list[Any]) -> None:
    cells = to_numpy(column(values))
    assert [cell if cell is None else cell.tolist() for cell in cells] == expected


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([1.5, -0.25, 96.0], dtype=torch.bfloat16, requires_grad=True),
        torch.tensor([1.5, -0.25, 96.0], dtype=torch.float8_e5m2),
        np.array([1.5, -0.25, 96.0], ml_dtypes.bfloat16),
    ],
)
def test_narrow_numbers_become_float32_with_the_same_values(values: Any) -> None:
    assert column(values).equals(pa.array([1.5, -0.25, 96.0], pa.float32()))
    assert to_numpy(column([values, None, values]))[2].tolist() == [1.5, -0.25, 96.0]


def test_numbers_keep_their_type_and_memory_of_their_own() -> None:
    for kind in (np.int8, np.uint16, np.float16, np.float32, np.bool_, "datetime64[ns]", "timedelta64[ms]", "M8[D]"):
        values = np.array([0, 1, 1]).astype(kind)
        taken = column(values)
        assert taken.type == pa.from_numpy_dtype(values.dtype)
        values[:] = values[:1]
        assert taken[1] != taken[0]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_an_image_becomes_a_png_of_its_mode_and_pixels(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000)
    else:
        colours = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(3, 4, 4) * 5, "RGBA")
        image = colours.convert("RGB").convert(mode) if mode in ("1", "P") else colours.convert(mode)
    read = Image.open(io.BytesIO(column([image, None, image])[0].as_py()))
    assert (read.format, read.mode, read.size, read.tobytes()) == ("PNG", mode, (4, 3), image.tobytes())
    assert mode != "P" or read.getpalette() == image.getpalette()


def animation() -> Image.Image:
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "GIF", save_all=True, append_images=[Image.new("RGB", (2, 2), "red")])
    return Image.open(file)


ZONES = "'y': found times with a zone and times without a zone"
REFUSED: dict[str, tuple[Any, str]] = {
    "whole numbers beyond 64 bits": (
        [BIG, 1, None],
        f"'y': found whole numbers beyond 64 bits, such as {BIG}. Use text",
    ),
    "in a list": ([[BIG], [1], None], "whole numbers beyond 64 bits"),
    "in a dict": ([{"h": BIG}, {"h": 1}, None], "whole numbers beyond 64 bits"),
    "unsigned numbers in a list": ([2**63, 1, 0], "Use numpy.array(values, numpy.uint64)"),
    "months": (np.array(["2026-01"] * 3, "datetime64[M]"), "datetime64[M]"),
    "durations of days": (np.array([1, 2, 3], "timedelta64[D]"), "timedelta64[D]"),
    "numbers of 128 bits": (np.ones(3, np.longdouble), "numbers, and a column has at most 64 bits for one"),
    "one in a dict": ([{"v": np.longdouble(1)}] * 3, "at most 64 bits for one"),
    "raw memory": (np.zeros(3, "V4"), "raw memory"),
    "complex": ([1j] * 3, "a value of type complex"),
    "a decimal that is no number": ([decimal.Decimal("NaN")] * 3, "Decimal('NaN')"),
    "a decimal of 81 digits": ([decimal.Decimal(10) ** 80] * 3, "a Decimal of 81 digits, and a column has at most 76"),
    "a duration beyond 64 bits": ([datetime.timedelta.max] * 3, "beyond 64 bits"),
    "half of a character": (["a\ud800", "b", "c"], "UTF-8 lacks"),
    "nanoseconds in a dict": ([{"t": NANOSECOND}] * 3, "a Timestamp of pandas with nanoseconds inside a value"),
    "periods": (pd.Series(pd.period_range("2026-01", periods=3, freq="M")), "period[M] values of pandas"),
    "a matrix with a masked entry": (masked(np.ones((3, 2)), [[0, 1], [0, 0], [0, 0]]), "arrays with masked entries"),
    "a union": (pa.UnionArray.from_sparse(pa.array([0] * 3, pa.int8()), [pa.array([1] * 3)]), "sparse_union"),
    "an object": ([object()] * 3, "a value of type object. Use numbers, texts, bytes"),
    "a key": ([{1: "a"}] * 3, "a dict with a key of type int. Use texts as keys"),
    "a set without an order": ([{1, "a"}] * 3, "a set whose values have no order. Use a list"),
    "a time of day": ([datetime.time(1, tzinfo=HOURS)] * 3, "a time of day with a zone"),
    "zones": ([NAIVE, AWARE, None], f"column {ZONES}. Use one type"),
    "zones in a dict": ([{"t": NAIVE}, {"t": AWARE}, {}], "'y.t': found times with a zone and times without a zone"),
    "dates and times": ([datetime.date(2026, 1, 1), NAIVE, None], "'y': found dates and times without a zone"),
    "bytes and texts": (["a", b"a", None], "'y': found bytes and texts. Use one type"),
    "arrays and numbers": ([{"b": np.zeros(2)}, {"b": 1}, None], "'y.b': found arrays and numbers"),
    "an animation": ([animation()] * 3, "found an image of 2 frames. Use one of them"),
    **{
        f"an image of mode {mode}": ([Image.new(mode, (2, 2))] * 3, f"found an image of mode {mode}, and PNG has 1, L")
        for mode in ("F", "I", "CMYK", "YCbCr", "HSV", "LAB", "I;16B")
    },
}


@pytest.mark.parametrize(("values", "reason"), REFUSED.values(), ids=REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_a_value_that_no_column_holds_is_refused_with_its_column_and_type(values: Any, reason: str) -> None:
    with pytest.raises(InvalidValues) as caught:
        column(values)
    assert str(caught.value).startswith("column 'y")
    assert reason in str(caught.value)


@pytest.mark.parametrize("values", [[2**53 + 1, 0.5, None], [[1], [0.5], [2**53 + 1]], [1, True, None], [1, "a", None]])
def test_kinds_without_a_common_type_are_refused_with_their_column(values: Any) -> None:
    with pytest.raises(ContractError, match="column 'y': expected values of one type"):
        applied(lambda batch: {"y": [values[x - 1] for x in batch["x"]]})


RECORDS = [Record("a", 0.1), Record("b", 0.2), Record("c", 0.3)]
BY_ROW = {"label": ["a", "b", "c"], "score": [0.1, 0.2, 0.3]}


async def each_later(batch: Any) -> Any:
    for record in RECORDS:
        await asyncio.sleep(0)
        yield record


FORMS: dict[str, Callable[[Any], Any]] = {
    "a named tuple": lambda batch: Pair(*BY_ROW.values()),
    "a dataclass": lambda batch: Record(**BY_ROW),
    "a mapping": lambda batch: UserDict(BY_ROW),
    "pandas": lambda batch: pd.DataFrame(BY_ROW),
    "an index without the order of rows": lambda batch: pd.DataFrame(BY_ROW, index=[9, 8, 7]),
    "arrow": lambda batch: pa.table(BY_ROW),
    "a stream": lambda batch: Frame(pa.table({**BY_ROW, "label": pa.array(BY_ROW["label"], pa.string_view())})),
    "iterators": lambda batch: {name: iter(values) for name, values in BY_ROW.items()},
    "rows": lambda batch: RECORDS,
    "dicts": lambda batch: tuple(dataclasses.asdict(record) for record in RECORDS),
    "a generator of rows": lambda batch: (record for record in RECORDS),
    "a generator of pieces": lambda batch: ({"label": [r.label], "score": np.array([r.score])} for r in RECORDS),
    "a generator of frames": lambda batch: iter([pd.DataFrame(BY_ROW)[:2], pd.DataFrame(BY_ROW)[2:]]),
    "an async generator": each_later,
}


@pytest.mark.parametrize("function", FORMS.values(), ids=FORMS)
def test_a_batch_is_taken_in_each_form_in_which_its_columns_are_written(function: Callable[[Any], Any]) -> None:
    taken = columns(function)
    assert {name: values.to_pylist() for name, values in taken.items()} == BY_ROW
    assert [values.type for values in taken.values()] == [pa.string(), pa.float64()]


def test_pieces_of_a_generator_keep_the_type_of_their_numbers() -> None:
    taken = columns(lambda batch: ({"y": np.array([n], np.int16), "v": np.ones((1, 2), np.float32)} for n in range(3)))
    assert taken["y"].equals(pa.array([0, 1, 2], pa.int16()))
    assert to_numpy(taken["v"]).dtype == np.float32


def sorted_frame(batch: Any) -> pd.DataFrame:
    return pd.DataFrame(batch).sort_values("x", ascending=False)


WRONG_FORMS: list[tuple[Callable[[Any], Any], str]] = [
    (lambda batch: {"y": "abc"}, "has a single str for a batch of 3 rows"),
    (lambda batch: {"y": {"a": 1, "b": 2, "c": 3}}, "has a single dict"),
    (lambda batch: {"y": np.array(1)}, "has a single ndarray"),
    (lambda batch: {"y": 3}, "has a single int"),
    (lambda batch: {"y": {1, 2, 3}}, "column 'y' is a set, which has no order"),
    (lambda batch: iter(RECORDS[:2]), "found 2 yields for a batch of 3 rows"),
    (lambda batch: iter(RECORDS * 2), "found 6 yields for a batch of 3 rows"),
    (lambda batch: RECORDS[:2], "found 2 entries for a batch of 3 rows"),
    (lambda batch: iter([{"y": np.zeros(2)}]), "its 1 yields have 2 values for a batch of 3 rows"),
    (lambda batch: iter([{"y": [1, 2], "z": [1]}]), "columns of different lengths (y: 2, z: 1)"),
    (lambda batch: iter(["a", "b", "c"]), "its value 0 is of type str"),
    (lambda batch: None, "expected a dict of arrays, found NoneType"),
    (lambda batch: np.zeros(3), "expected a dict of arrays, found ndarray"),
    (lambda batch: pd.DataFrame([[1, 2]] * 3, columns=["y", "y"]), "columns of different names, found y, y"),
    (lambda batch: {"row_id": ["c", "b", "a"]}, "the rows come back in another order: the first is 'c'"),
    (lambda batch: {"row_id": ["k1", "k2", "k3"]}, "expected row_id unchanged"),
    (lambda batch: {"uri": ["k1", "k2", "k3"]}, "expected uri unchanged"),
    (lambda batch: {"": [1, 2, 3]}, "'' is not a usable column name"),
    (lambda batch: {"y": sorted_frame(batch)["x"]}, "column 'y' comes back in another order: its pandas index begins"),
    (lambda batch: sorted_frame(batch).set_index("row_id").add_prefix("y_"), "begins with 'c', expected 'a'"),
]


@pytest.mark.parametrize(("function", "reason"), WRONG_FORMS)
def test_another_form_or_number_of_outputs_is_refused(function: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(ContractError) as caught:
        columns(function)
    assert reason in str(caught.value)


def test_async_code_runs_in_one_loop_beside_the_thread_that_calls_it_and_rows_concurrently() -> None:
    seen = []
    together = asyncio.Barrier(3)  # it opens when three wait for it

    async def row(x: int) -> Any:
        seen.append((asyncio.get_running_loop(), threading.current_thread()))
        await together.wait()
        return int(x) * 2

    async def model(batch: Any) -> Any:
        return {"y": await asyncio.gather(*map(row, batch["x"]))}

    for function in (model, lambda batch: {"y": [row(x) for x in batch["x"]]}):
        assert columns(function)["y"].to_pylist() == [2, 4, 6]
    assert len(set(seen)) == 1
    assert seen[0][1] is not threading.current_thread()


def applied(function: Callable[[Any], Any]) -> pa.Table:
    """What becomes of the rows, if errors that may pass are tried again."""
    work = retry.with_retries(lambda live: user_function.outcome_of(function, live, "infer", "model"), "infer")
    return apply.apply(source_block(0, 0, ROWS), "infer", work)


@pytest.mark.parametrize("as_rows", [True, False])
def test_the_exception_of_an_awaitable_quarantines_its_row_alone_without_another_call(as_rows: bool) -> None:
    calls = []

    async def row(x: int) -> Any:
        calls.append(x)
        if x == 2:
            raise ValueError("two is no number")
        return {"y": int(x)} if as_rows else int(x)

    def model(batch: Any) -> Any:
        answers = [row(x) for x in batch["x"]]
        return answers if as_rows else {"y": answers}

    done = applied(model)
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert done["__error_message"][1].as_py().startswith("two is no number (test_user_values.py")
    assert (done["y"].to_pylist(), calls) == ([1, None, 3], [1, 2, 3])


def test_a_lost_connection_of_an_awaitable_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: None)
    failures = [ConnectionResetError("reset by peer")]

    async def row(x: int) -> Any:
        if failures and x == 2:
            raise failures.pop()
        return {"y": int(x)}

    assert applied(lambda batch: [row(x) for x in batch["x"]])["y"].to_pylist() == [1, 2, 3]


def test_an_error_of_async_code_is_that_of_the_batch_and_names_its_line() -> None:
    async def model(batch: Any) -> Any:
        if 3 in batch["x"]:
            raise ValueError("no three")
        return {"y": batch["x"]}

    done = applied(model)
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED]
    assert "no three (test_user_values.py" in done["__error_message"][2].as_py()


@pytest.mark.parametrize("explode", [[], ["vector"]])
@pytest.mark.parametrize("form", ["array", "cells", "yields"])
def test_a_step_may_use_the_memory_of_its_results_again(form: str, explode: list[str]) -> None:
    step = PythonStep(target=f"{user_models.__name__}:Buffered", kwargs={"form": form}, explode=explode).build()
    first = step(ROWS)
    step(ROWS.set_column(1, "x", pa.array([7, 8, 9])))
    taken = {name: to_numpy(pa.chunked_array([to_arrow(values)])).tolist() for name, values in first.columns.items()}
    if explode:
        assert taken["vector"] == [1, 1, 2, 2, 3, 3]
    else:
        assert (taken["score"], taken["vector"]) == ([1, 2, 3], [[1, 1], [2, 2], [3, 3]])


@pytest.mark.parametrize(
    "wrapped", [memoryview, lambda memory: {"a": memoryview(memory)}, lambda memory: {"a": [memory]}]
)
def test_memory_inside_a_yielded_row_may_be_used_again(wrapped: Callable[[bytearray], Any]) -> None:
    def rows(batch: Any) -> Any:
        memory = bytearray(2)
        for number in batch["x"]:
            memory[:] = bytes([number, number])
            yield {"y": wrapped(memory)}

    expected = column([wrapped(bytearray([number, number])) for number in (1, 2, 3)])
    assert columns(rows)["y"].to_pylist() == expected.to_pylist()
