"""Adapters of the steps on values of rows: DuckDB, Python's own words and what was written down say what is right."""

from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from overnight.tasks.preprocess.steps.deduplicate import Deduplicate
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.explode import Explode
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.preprocess.steps.python import PythonStep
from overnight.tasks.preprocess.steps.split_text import SplitText
from overnight.tasks.rows.tensors import to_arrow
from tests.contracts.steps.adapter import Row, StepAdapter

TEXT = "One is short.\n\nTwo has a sentence. And another one. Here words must be cut"
CHUNKS = ["One is short.", "Two has a sentence. And another one.", "Here words must be cut"]
PRICES = pa.table({"price": ["7.50", "3", None, "12"], "count": [2, 5, 1, None]})
CONDITION, TOTAL = "price::DECIMAL(9, 2) * count > 14", "price::DECIMAL(9, 2) * count"
WORDS = ["ab", "", None, "x"]


def by_duckdb(expression: str) -> list[Any]:
    prices = PRICES
    with duckdb.connect() as database:
        database.register("prices", prices)
        return [value for (value,) in database.execute(f"SELECT {expression} FROM prices").fetchall()]


def chunk(text: str, number: int) -> Row:
    start = TEXT.index(text)
    return {"text": text, "chunk": number, "chunk_start": start, "chunk_end": start + len(text)}


ENTRIES = pa.table(
    {
        "word": pa.array([["x", None], [], None, ["y"]], pa.list_(pa.string())),
        "price": pa.array([[Decimal("1.50"), None], None, [], [Decimal("2.00")]], pa.list_(pa.decimal128(9, 2))),
    }
)

ADAPTERS = {
    "split_text": StepAdapter(
        SplitText(size=40), pa.table({"text": [TEXT, " \n", "", "äö 😀"]}),
        [
            [chunk(text, number) for number, text in enumerate(CHUNKS)],
            [], [], [{"text": "äö 😀", "chunk": 0, "chunk_start": 0, "chunk_end": 4}],
        ],
        suffixes=[[0, 1, 2], [], [], [0]],
        broken={"null": ({"text": None}, "text: expected a text, found no value")},
    ),
    "filter_rows": StepAdapter(
        FilterRows(expression=CONDITION), PRICES, [[{}] if value else [] for value in by_duckdb(CONDITION)],
        broken={"no-number": ({"price": "free", "count": 1}, "Could not convert string .free. to DECIMAL")},
        unusable=[("price", pa.array([b"a"])), ("price", to_arrow([np.zeros((2, 2))]))],
    ),
    "derive_columns": StepAdapter(
        DeriveColumns(columns={"total": TOTAL, "twice": "total * 2"}), PRICES,
        [[{"total": one, "twice": two}] for one, two in zip(by_duckdb(TOTAL), by_duckdb(f"{TOTAL} * 2"), strict=True)],
        broken={"no-number": ({"price": "free", "count": 1}, "Could not convert string .free. to DECIMAL")},
        unusable=[("count", pa.array([b"a"]))],
    ),
    "explode": StepAdapter(
        Explode(columns=["word", "price"]), ENTRIES,
        [
            [{"word": "x", "price": Decimal("1.50")}, {"word": None, "price": None}], [], [],
            [{"word": "y", "price": Decimal("2.00")}],
        ],
        suffixes=[[0, 1], [], [], [0]],
        broken={"lengths": ({"word": ["a", "b"], "price": None}, "2 entries in 'word' and 0 in 'price'")},
        unusable=[("word", pa.array([value])) for value in (1, "a", {"a": 1})],
    ),
    "deduplicate": StepAdapter(
        Deduplicate(columns=["url", "number"]),
        pa.table({"url": ["a", "b", "a", None, None, "a"], "number": [1.0, 1, 1, 1, 1, float("nan")]}),
        [[{}], [{}], [], [{}], [], [{}]],
        unusable=[("url", pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())))],
    ),
    "python": StepAdapter(
        PythonStep(target="tests.contracts.steps.user_code:letters", explode=["letter"]), pa.table({"word": WORDS}),
        [[{"letter": letter, "length": len(word or "")} for letter in word or ""] for word in WORDS],
        suffixes=[list(range(len(word or ""))) for word in WORDS],
        broken={"raises": ({"word": "fails"}, r"no such word \(user_code.py:\d+, in letters\)")},
    ),
}  # fmt: skip
