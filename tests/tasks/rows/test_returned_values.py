"""What models and steps return, in the forms in which people write them: taken exactly, or refused with the reason."""

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
from collections import OrderedDict, UserDict
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pandas as pd
import pyarrow as pa
import pydantic
import pytest
from PIL import Image

from overnight.tasks.errors import ContractError, InvalidValues
from overnight.tasks.rows import apply, blocks, user_function
from overnight.tasks.rows.tensors import to_arrow, to_numpy
from overnight.tasks.workers import retry
from tests.tasks.blocks import source_block

ROWS = pa.table({"row_id": ["a", "b", "c"], "x": [1, 2, 3]})
HOURS = datetime.timezone(datetime.timedelta(hours=2))


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Found:
    label: str
    score: float


class Pair(NamedTuple):
    label: str
    score: float


class Model(pydantic.BaseModel):
    label: str
    price: decimal.Decimal
    inner: Found | None = None


class Frame:
    """A table with Arrow's stream protocol, as Polars has it: texts are views."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def columns(function, rows: pa.Table = ROWS) -> dict[str, pa.Array]:
    made = user_function.outcome_of(function, rows, "infer", "my_models:Model")
    assert not made.failed
    return {name: to_arrow(values) for name, values in made.columns.items()}


def column(values: Any) -> pa.Array:
    return columns(lambda batch: {"y": values})["y"]


def refusal(function, kind: type[Exception] = ContractError) -> str:
    with pytest.raises(kind) as caught:
        columns(function)
    return str(caught.value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Found("cat", 0.5), {"label": "cat", "score": 0.5}),
        (Pair("cat", 0.5), {"label": "cat", "score": 0.5}),
        (Model(label="a", price="1.10", inner=Found("b", 1)).model_dump(), None),
        (UserDict(a=1), {"a": 1}),
        (OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": Colour.RED}), {"a": "red"}),
        ({"b", "a"}, ["a", "b"]),
        (frozenset([3, 1]), [1, 3]),
        ((1, 2), [1, 2]),
        (range(2), [0, 1]),
        (Colour.RED, "red"),
        (pathlib.PurePosixPath("a/b"), "a/b"),
        (uuid.UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (bytearray(b"x"), b"x"),
        (memoryview(b"xyz")[::2], b"xz"),
        (decimal.Decimal("1.10"), decimal.Decimal("1.10")),
        (datetime.date(2026, 1, 2), datetime.date(2026, 1, 2)),
        (datetime.datetime(2026, 1, 2, 3, tzinfo=HOURS), datetime.datetime(2026, 1, 2, 3, tzinfo=HOURS)),
        (datetime.timedelta(seconds=3), datetime.timedelta(seconds=3)),
        ([Found("cat", 0.5)], [{"label": "cat", "score": 0.5}]),
        ({"box": np.zeros((1, 2), np.float32)}, {"box": [[0.0, 0.0]]}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_value_of_a_row_is_taken_with_all_that_it_holds(value: Any, expected: Any) -> None:
    assert column([value, None, value]).to_pylist() == [expected or value, None, expected or value]


def test_an_object_of_pydantic_keeps_the_exact_values_of_its_fields() -> None:
    found = column([Model(label="a", price="1.10", inner=Found("b", 0.5))] * 3)
    assert found[0].as_py() == {
        "label": "a", "price": decimal.Decimal("1.10"), "inner": {"label": "b", "score": 0.5}
    }  # fmt: skip


def test_a_missing_time_of_pandas_has_no_zone_that_differs() -> None:
    zoned = pd.Timestamp("2026-01-01", tz="UTC")
    assert column([zoned, pd.NaT, zoned]).to_pylist() == [zoned, None, zoned]


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"])
def test_an_image_becomes_a_png_of_its_mode_and_pixels(mode: str) -> None:
    if mode == "I;16":
        image = Image.fromarray(np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000)
    else:
        colours = Image.fromarray(np.arange(48, dtype=np.uint8).reshape(3, 4, 4) * 5, "RGBA")
        image = colours.convert("RGB").convert(mode) if mode in ("1", "P") else colours.convert(mode)
    read = Image.open(io.BytesIO(column([image, None, image])[0].as_py()))
    assert (read.format, read.mode, read.size) == ("PNG", mode, (4, 3))
    assert read.tobytes() == image.tobytes()
    assert mode != "P" or read.getpalette() == image.getpalette()


@pytest.mark.parametrize("mode", ["F", "I", "CMYK", "YCbCr", "HSV", "LAB", "I;16B"])
def test_an_image_that_png_cannot_hold_unchanged_is_refused_with_its_mode(mode: str) -> None:
    told = refusal(lambda batch: {"y": [Image.new(mode, (2, 2))] * 3}, InvalidValues)
    assert f"column 'y': found an image of mode {mode}, and PNG has 1, L, LA" in told
    assert "numpy.asarray(image)" in told


def test_the_frames_of_an_animation_are_not_lost_in_silence() -> None:
    file = io.BytesIO()
    Image.new("RGB", (2, 2)).save(file, "GIF", save_all=True, append_images=[Image.new("RGB", (2, 2), "red")])
    told = refusal(lambda batch: {"y": [Image.open(file)] * 3}, InvalidValues)
    assert "found an image of 2 frames. Use one of them" in told


def narrow(values: list[float]) -> list[Any]:
    torch = pytest.importorskip("torch")
    import jax.numpy as jnp

    return [
        torch.tensor(values, dtype=torch.bfloat16),
        torch.tensor(values, dtype=torch.float8_e5m2),
        torch.tensor(values, dtype=torch.bfloat16, requires_grad=True),
        np.array(values, ml_dtypes.bfloat16),
        jnp.array(values, jnp.bfloat16),
    ]


def test_narrow_numbers_become_float32_with_the_same_values() -> None:
    values = [1.5, -0.25, 96.0]
    for found in narrow(values):
        assert column(found).equals(pa.array(values, pa.float32()))
        assert to_numpy(column([found, None, found]))[2].tolist() == values
    assert column(list(np.array(values, ml_dtypes.bfloat16))).to_pylist() == values
    assert column(np.array([1, -2, 3], ml_dtypes.int4)).equals(pa.array([1, -2, 3], pa.int8()))


def test_a_tensor_that_numpy_cannot_read_as_it_is_is_taken() -> None:
    torch = pytest.importorskip("torch")
    matrix = torch.arange(6.0, requires_grad=True).reshape(3, 2)
    assert to_numpy(column(matrix)).tolist() == [[0, 1], [2, 3], [4, 5]]
    assert to_numpy(column(torch.eye(3).to_sparse())).tolist() == np.eye(3).tolist()
    assert to_numpy(column([row * 2 for row in matrix])).tolist() == [[0, 2], [4, 6], [8, 10]]
    assert column([{"score": row.sum()} for row in matrix]).to_pylist() == [{"score": s} for s in (1.0, 5.0, 9.0)]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([1j] * 3, "a value of type complex"),
        (list(np.array([1j] * 3)), "complex128 numbers. Use their real and imaginary parts in two columns"),
        ([object()] * 3, "a value of type object. Use numbers, texts, bytes"),
        ([{1: "a"}] * 3, "a dict with a key of type int. Use texts as keys"),
        ([{1, "a"}] * 3, "a set whose values have no order. Use a list"),
        ([datetime.time(1, tzinfo=HOURS)] * 3, "a time of day with a zone"),
        (
            [datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=HOURS), None],
            "times with a zone and times without a zone. Use one type",
        ),
        ([datetime.date(2026, 1, 1), datetime.datetime(2026, 1, 1, 12), None], "dates and times without a zone"),
        (["a", b"a", None], "bytes and texts. Use one type"),
        ([["a"], [b"a"], None], "bytes and texts. Use one type"),
        ([np.zeros(2), 1, None], "arrays and numbers"),
    ],
    ids=["complex", "complexes", "object", "key", "set", "time", "zones", "dates", "bytes", "lists", "arrays"],
)
def test_a_value_that_no_column_holds_unchanged_is_refused_with_its_column_and_type(values: Any, told: str) -> None:
    assert refusal(lambda batch: {"y": values}, InvalidValues).startswith(f"column 'y': found {told}")


NAIVE, AWARE = datetime.datetime(2026, 1, 1), datetime.datetime(2026, 1, 1, tzinfo=HOURS)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([[NAIVE, AWARE], [], None], "column 'y': found times with a zone and times without a zone"),
        ([[NAIVE], [AWARE], []], "column 'y': found times with a zone and times without a zone"),
        ([{"t": NAIVE}, {"t": AWARE}, {}], "column 'y.t': found times with a zone and times without a zone"),
        ([[{"t": [NAIVE]}], [{"t": [AWARE]}], []], "column 'y.t': found times with a zone and times without a zone"),
        (
            [np.array([NAIVE, AWARE], object), None, None],
            "column 'y': found times with a zone and times without a zone",
        ),
        ([{"b": np.zeros(2)}, {"b": 1}, None], "column 'y.b': found arrays and numbers"),
        ([[datetime.date(2026, 1, 1)], [NAIVE], []], "column 'y': found dates and times without a zone"),
        ([["a", b"a"], [], []], "column 'y': found bytes and texts"),
    ],
)
def test_kinds_that_are_mixed_inside_lists_and_structs_are_refused_with_their_place(values: Any, told: str) -> None:
    assert refusal(lambda batch: {"y": values}, InvalidValues).startswith(told)


def test_kinds_that_differ_between_fields_and_zones_that_differ_are_kept() -> None:
    values = [[{"a": NAIVE, "b": AWARE, "c": "x", "d": b"x"}], [{"a": None, "b": AWARE.astimezone(datetime.UTC)}], None]
    [first, second, nothing] = column(values).to_pylist()
    assert (first[0]["a"], first[0]["b"], second[0]["b"]) == (NAIVE, AWARE, AWARE)
    assert nothing is None


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ("abc", "str"),
        ({"a": 1, "b": 2, "c": 3}, "dict"),
        (np.array(1), "ndarray"),
        (Found("a", 1), "Found"),
        (3, "int"),
    ],
)
def test_one_value_for_the_whole_batch_is_refused(values: Any, kind: str) -> None:
    told = refusal(lambda batch: {"y": values})
    assert f"my_models:Model: column 'y' has a single {kind} for a batch of 3 rows" in told


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: {"y": pd.Series([1, 2, 3], index=[9, 8, 7])},
        lambda batch: {"y": pd.Series([1, 2, 3], index=[0, 0, 0])},
        lambda batch: pd.DataFrame({"y": [3, 2, 1]}).sort_values("y").reset_index(drop=True),
        lambda batch: pd.DataFrame({"y": [3, 2, 1]}).sort_values("y", ascending=False),
        lambda batch: {"y": pd.DataFrame({"y": [3, 2, 1]}).sort_values("y")["y"].to_numpy()[::-1]},
    ],
)
def test_an_index_of_pandas_that_names_no_other_order_is_taken(function) -> None:
    assert len(columns(function)["y"]) == 3


def test_a_set_as_a_column_is_refused() -> None:
    assert "column 'y' is a set, which has no order" in refusal(lambda batch: {"y": {1, 2, 3}})


RECORDS = [Found("a", 0.1), Found("b", 0.2), Found("c", 0.3)]
BY_ROW = {"label": ["a", "b", "c"], "score": [0.1, 0.2, 0.3]}


async def each_later(batch):
    for record in RECORDS:
        await asyncio.sleep(0)
        yield record


@pytest.mark.parametrize(
    "function",
    [
        lambda batch: Pair(*BY_ROW.values()),
        lambda batch: Found(**BY_ROW),
        lambda batch: UserDict(BY_ROW),
        lambda batch: pd.DataFrame(BY_ROW),
        lambda batch: pa.table(BY_ROW),
        lambda batch: Frame(pa.table({**BY_ROW, "label": pa.array(BY_ROW["label"], pa.string_view())})),
        lambda batch: {name: iter(values) for name, values in BY_ROW.items()},
        lambda batch: RECORDS,
        lambda batch: tuple(dataclasses.asdict(record) for record in RECORDS),
        lambda batch: (record for record in RECORDS),
        lambda batch: ({"label": [r.label], "score": np.array([r.score])} for r in RECORDS),
        lambda batch: iter([pd.DataFrame(BY_ROW)[:2], pd.DataFrame(BY_ROW)[2:]]),
        each_later,
    ],
    ids=[
        *("namedtuple", "dataclass", "mapping", "pandas", "arrow", "stream", "iterators", "rows", "dicts"),
        *("generator of rows", "generator of pieces", "generator of frames", "async generator"),
    ],
)
def test_a_batch_is_taken_in_each_form_in_which_its_columns_are_written(function) -> None:
    found = columns(function)
    assert {name: values.to_pylist() for name, values in found.items()} == BY_ROW
    assert [values.type for values in found.values()] == [pa.string(), pa.float64()]


def test_pieces_of_a_generator_keep_the_type_of_their_numbers() -> None:
    found = columns(lambda batch: ({"y": np.array([n], np.int16), "v": np.ones((1, 2), np.float32)} for n in range(3)))
    assert found["y"].equals(pa.array([0, 1, 2], pa.int16()))
    assert to_numpy(found["v"]).dtype == np.float32


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (lambda batch: iter(RECORDS[:2]), "expected one of its yields per row, found 2 yields for a batch of 3 rows"),
        (lambda batch: iter(RECORDS * 2), "found 6 yields for a batch of 3 rows"),
        (lambda batch: RECORDS[:2], "found 2 entries for a batch of 3 rows"),
        (lambda batch: iter([{"y": np.zeros(2)}]), "its 1 yields have 2 values for a batch of 3 rows"),
        (lambda batch: iter([{"y": [1, 2], "z": [1]}]), r"columns of different lengths (y: 2, z: 1)"),
        (lambda batch: iter(["a", "b", "c"]), "found list, and its value 0 is of type str"),
        (lambda batch: None, "expected a dict of arrays, found NoneType"),
        (lambda batch: np.zeros(3), "expected a dict of arrays, found ndarray"),
        (lambda batch: pd.DataFrame([[1, 2]] * 3, columns=["y", "y"]), "columns of different names, found y, y"),
        (lambda batch: {"row_id": ["c", "b", "a"]}, "the rows come back in another order: the first is 'c'"),
        (
            lambda batch: {"row_id": ["k1", "k2", "k3"]},
            "expected row_id unchanged, because Overnight names the rows, found 'k1'. Return the values in a column",
        ),
        (lambda batch: {"uri": ["k1", "k2", "k3"]}, "expected uri unchanged"),
        (lambda batch: {"": [1, 2, 3]}, "'' is not a usable column name. Return a name that is not empty"),
        (
            lambda batch: pd.DataFrame(batch).sort_values("x", ascending=False)[["x"]].rename(columns={"x": "y"}),
            "column 'y' comes back in another order: its pandas index begins with 2, expected 0. Keep the order",
        ),
        (
            lambda batch: {"y": pd.Series(batch["x"]).sort_values(ascending=False)},
            "column 'y' comes back in another order",
        ),
        (
            lambda batch: pd.DataFrame(batch).set_index("row_id").sort_values("x", ascending=False).add_prefix("y_"),
            "its pandas index begins with 'c', expected 'a'",
        ),
    ],
)
def test_another_form_or_number_of_outputs_is_refused(function, told: str) -> None:
    assert told in refusal(function)


def test_async_code_runs_to_its_end_in_one_loop_that_stays_open() -> None:
    loops = []

    class Asks:
        async def __call__(self, batch):
            loops.append(asyncio.get_running_loop())
            return {"y": await asyncio.gather(*map(self.ask, batch["x"]))}

        async def ask(self, x):
            await asyncio.sleep(0)
            return x * 2

    asks = Asks()
    assert columns(asks)["y"].to_pylist() == columns(asks)["y"].to_pylist() == [2, 4, 6]
    assert loops[0] is loops[1]


def test_awaitables_of_rows_run_concurrently() -> None:
    together = asyncio.Barrier(3)  # it opens when three wait for it

    async def one(x):
        await together.wait()
        return {"y": x}

    assert columns(lambda batch: [one(x) for x in batch["x"]])["y"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize("as_rows", [True, False])
def test_the_exception_of_an_awaitable_quarantines_its_row_alone_without_another_call(as_rows: bool) -> None:
    calls = []

    async def one(x):
        calls.append(x)
        if x == 2:
            raise ValueError("two is no number")
        return {"y": int(x)} if as_rows else int(x)

    def model(batch):
        made = [one(x) for x in batch["x"]]
        return made if as_rows else {"y": made}

    work = retry.with_retries(lambda live: user_function.outcome_of(model, live, "infer", "model"), "infer")
    done = apply.apply(source_block(0, 0, ROWS), "infer", work)
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.QUARANTINED, blocks.LIVE]
    assert done["__error_message"][1].as_py().startswith("two is no number (test_returned_values.py")
    assert (done["y"].to_pylist(), calls) == ([1, None, 3], [1, 2, 3])


def test_a_lost_connection_of_an_awaitable_is_tried_again(monkeypatch) -> None:
    monkeypatch.setattr(retry.time, "sleep", lambda seconds: None)
    failures = [ConnectionResetError("reset by peer")]

    async def one(x):
        if failures and x == 2:
            raise failures.pop()
        return {"y": int(x)}

    def work(live):
        return user_function.outcome_of(lambda batch: [one(x) for x in batch["x"]], live, "infer", "model")

    assert retry.with_retries(work, "infer")(ROWS).columns["y"] == [1, 2, 3]


def test_an_error_of_async_code_is_that_of_the_batch_and_names_its_line() -> None:
    async def model(batch):
        if 3 in batch["x"]:
            raise ValueError("no three")
        return {"y": batch["x"]}

    done = apply.apply(
        source_block(0, 0, ROWS), "infer", lambda live: user_function.outcome_of(model, live, "infer", "model")
    )
    assert done["__state"].to_pylist() == [blocks.LIVE, blocks.LIVE, blocks.QUARANTINED]
    assert "no three (test_returned_values.py" in done["__error_message"][2].as_py()


def test_async_code_runs_beside_the_thread_that_calls_it() -> None:
    async def model(batch):
        return {"thread": [threading.current_thread().name] * len(batch["x"])}

    assert columns(model)["thread"][0].as_py() != threading.current_thread().name
