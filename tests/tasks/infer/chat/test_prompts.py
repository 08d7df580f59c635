"""Prompts from the columns of a row: names in braces, and one text of a value, whichever rows share its batch."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import ContractError, RowError
from overnight.tasks.infer.chat.prompts import as_texts, filled, fixed_text_after_columns, placeholders, texts
from overnight.tasks.infer.link import Link
from overnight.tasks.infer.models.chat import Chat
from overnight.tasks.infer.models.image_captioning import ImageCaptioning
from overnight.tasks.infer.models.openai import OpenAI
from overnight.tasks.infer.models.text_generation import TextGeneration
from overnight.tasks.infer.trial import require_inputs
from overnight.tasks.rows import apply, result, user_function
from overnight.tasks.rows.tensors import to_arrow
from tests.tasks.blocks import source_block

BATCH = {
    name: np.array(values, object) for name, values in {"a": ["1", "2"], "b": ["x", "{y}"], "c": ["z", None]}.items()
}


def test_columns_in_braces_are_named_once_and_filled_row_by_row() -> None:
    assert placeholders("{b} and {a}, {b} {{c}}") == ["b", "a"]
    assert filled('{{"text": "{b}"}} {a}', BATCH) == ['{"text": "x"} 1', '{"text": "{y}"} 2']
    assert filled("no {{columns}}", BATCH) == ["no {columns}"] * 2


def test_fixed_text_behind_the_first_column_is_counted_over_all_messages() -> None:
    assert fixed_text_after_columns(["be brief", "look at this: {a}"]) == 0
    assert fixed_text_after_columns(["of {a}, {b}.", "{{x}}{a}yz"]) == len(", .{x}yz")


@pytest.mark.parametrize("template", ["{}", "{text.__class__}", "{text[0]}", "{text!r}", "{text:>9}", "{"])
def test_other_than_plain_names_in_braces_is_refused_with_its_setting(template: str) -> None:
    with pytest.raises(ValueError, match="user: expected column names in braces"):
        placeholders(template, "user")
    for wrong in ({"user": template}, {"user": "{a}", "system": template}):
        with pytest.raises(ValidationError):
            Chat(model="m", **wrong)
    with pytest.raises(ValidationError):
        TextGeneration(model="m", text_column="text", prompt=template)


def test_a_prompt_names_the_text_and_a_message_of_a_chat_is_not_empty() -> None:
    with pytest.raises(ValidationError, match=r"expected .text. in it"):
        TextGeneration(model="m", text_column="text", prompt="{other}")
    with pytest.raises(ValidationError, match="user"):
        Chat(model="m", user="")


def test_a_row_without_a_value_or_a_text_fails_with_its_column() -> None:
    with pytest.raises(RowError, match="c: expected a value for the system, found none"):
        filled("{a} {c}", BATCH, "system")
    assert texts(BATCH["a"], "a") == ["1", "2"]
    for value, found in ((None, "no value"), (3, "int 3")):
        with pytest.raises(RowError, match=f"a: expected a text, found {found}"):
            texts(["x", value], "a")


NOON = datetime.datetime(2024, 2, 29, 12)


@pytest.mark.parametrize(
    ("values", "kind", "text"),
    [
        ([9007199254740993], pa.int64(), "9007199254740993"),
        ([2**64 - 1], pa.uint64(), "18446744073709551615"),
        ([3.0], pa.float64(), "3.0"),
        ([0.1], pa.float32(), "0.1"),
        ([True], pa.bool_(), "True"),
        (["a"], pa.string(), "a"),
        (["a"], pa.dictionary(pa.int8(), pa.string()), "a"),
        ([decimal.Decimal("0E-7")], pa.decimal128(20, 7), "0.0000000"),
        ([1709208000000000001], pa.timestamp("ns"), "2024-02-29 12:00:00.000000001"),
        ([NOON], pa.timestamp("us", "Europe/Berlin"), "2024-02-29 13:00:00+01:00"),
        ([NOON.date()], pa.date32(), "2024-02-29"),
        ([NOON.time()], pa.time64("us"), "12:00:00"),
        ([["a", "ä"]], pa.list_(pa.string()), '["a", "ä"]'),
        ([{"at": NOON, "n": [float("nan")]}], None, '{"at": "2024-02-29 12:00:00", "n": [null]}'),
    ],
)
def test_a_value_has_one_text_whichever_rows_share_its_batch(values: list[Any], kind: Any, text: str) -> None:
    alone = pa.chunked_array([pa.array(values, kind)])
    assert as_texts(alone).tolist() == [text]
    assert as_texts(pa.chunked_array([pa.array([*values, None], alone.type)])).tolist() == [text, None]


def test_an_array_in_a_prompt_is_json() -> None:
    assert as_texts(pa.chunked_array([to_arrow(np.ones((1, 2, 2), np.uint8))])).tolist() == ["[[1, 1], [1, 1]]"]


@pytest.mark.parametrize(
    "model",
    [
        Chat(model="m", user="{it}"),
        Chat(model="m", user="{n}", system="{it}"),
        ImageCaptioning(model="m", user="{it}"),
        TextGeneration(model="m", text_column="n", prompt="{n} {it}"),
    ],
)
def test_bytes_and_images_in_a_prompt_are_refused(model: Any) -> None:
    for values in (pa.array([b"\xff"]), to_arrow(np.ones((1, 2, 2, 3), np.uint8))):
        rows = pa.table({"row_id": ["a"], "n": ["b"], "image": ["c"], "it": values})
        with pytest.raises(ContractError):
            model.given("it", rows["it"])
        with pytest.raises(ContractError):
            require_inputs(Link(model), source_block(0, 0, rows))


def test_null_and_nan_are_never_asked_and_the_rows_beside_them_keep_their_whole_numbers() -> None:
    model = OpenAI(model="m", user="{id} of {qty}")
    rows = pa.table({"row_id": ["a", "b"], "id": pa.array([1.5, float("nan")]), "qty": pa.array([3, None], pa.int64())})

    def asked(batch: dict[str, np.ndarray]) -> dict[str, Any]:
        return {"asked": [messages[0]["content"] for messages in model.conversations(batch)]}

    def work(live: pa.Table) -> result.Outcome:
        return user_function.outcome_of(asked, live, "infer", "model", model.given)

    done = apply.apply(source_block(0, 0, rows), "infer", work)
    assert done["asked"].to_pylist() == ["1.5 of 3", None]
    assert done["__error_message"][1].as_py().startswith("id: expected a value for the user, found none.")


def test_a_prompt_for_generation_reads_values_alike_and_its_text_column_stays_a_text() -> None:
    model = TextGeneration(model="m", text_column="text", prompt="{n}: {text}")
    numbers = pa.chunked_array([pa.array([3, None], pa.int64())])
    assert model.given("n", numbers).tolist() == ["3", None]
    assert np.isnan(model.given("text", numbers)[1])  # refused as no text, as before
