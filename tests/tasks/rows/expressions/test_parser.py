"""filter_rows, derive_columns and where: DuckDB's SQL over one row, exact values, failures that cost their row."""

import datetime
import math
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.rows import blocks
from overnight.tasks.rows.expressions.engine import database
from overnight.tasks.rows.expressions.parser import Expression
from overnight.tasks.rows.tensors import to_arrow
from tests.bombs import defused
from tests.contracts.steps.adapter import applied, named, reasons

UTC = datetime.UTC
TABLE = pa.table(
    {
        "i": pa.array([7, -7, 0, None], pa.int32()),
        "j": pa.array([2, 2, 3, 4], pa.uint8()),
        "f": pa.array([1.5, -2.5, 0.0, None], pa.float32()),
        "t": ["Apple pie", " pear", "", None],
        "b": [True, False, None, True],
        "unit price": [1, 2, 3, 4],
        "made": pa.array([datetime.datetime(2024, 2, 29, 23, 5), datetime.datetime(2023, 1, 1), None, None]),
        "day": pa.array([datetime.date(2024, 2, 29), datetime.date(2023, 1, 1), None, None]),
        "zoned": pa.array(
            [datetime.datetime(2024, 2, 29, 23, 5, tzinfo=UTC), None] * 2, pa.timestamp("us", "Europe/Berlin")
        ),
        "d": pa.array([Decimal("0.10"), Decimal("12345678901234567890.25"), None, Decimal(3)], pa.decimal128(30, 2)),
        "tags": [["a"], [], None, ["b", "c"]],
        "s": [{"x": 1, "y": "p"}, {"x": None, "y": "q"}, None, {"x": 2**60 + 1, "y": None}],
        "c": pa.array(["x", "y", "x", None]).dictionary_encode(),
        "json": ['{"a": {"b": 5}}', "{}", None, "[]"],
        "nulls": pa.nulls(4),
        "big": [2**53 + 1, -(2**63), 2**63 - 1, None],
    }
)


def values(expression: str, table: pa.Table = TABLE) -> pa.Array:
    return Expression(expression).evaluate(table, "test", "preprocess")[0]


def after(step: FilterRows | DeriveColumns, table: pa.Table = TABLE) -> pa.Table:
    return applied(step, named(table))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("j - 3", [-1, -1, 0, 1]),
        ("j * 200", [400, 400, 600, 800]),
        ("i / j", [3.5, -3.5, 0.0, None]),
        ("f * 2", [3.0, -5.0, 0.0, None]),
        ("i * 2.5", [17.5, -17.5, 0.0, None]),
        ("0.1 * 3", [0.3] * 4),
        ("t || '!'", ["Apple pie!", " pear!", "!", None]),
        ("1 -- all rows", [1, 1, 1, 1]),
        ("b or i > 0", [True, False, None, True]),
        ("i in [7, 0]", [True, False, True, None]),
        ("i between 0 and 9", [True, False, True, None]),
        ('"unit price" * 2', [2, 4, 6, 8]),
        ("I + J", [9, -5, 3, None]),
        ("length(t)", [9, 5, 0, None]),
        ("coalesce(i, f, -1)", [7.0, -7.0, 0.0, -1.0]),
        ("case when i <> 0 then 10 // i else 0 end", [1, -1, 0, 0]),
        ("c = 'x'", [True, False, True, None]),
        ("list_transform(tags, lambda tag: tag || t)", [["aApple pie"], [], None, [None, None]]),
        ("[upper(tag) for tag in tags]", [["A"], [], None, ["B", "C"]]),
        ("s.x + 1", [2, None, None, 2**60 + 2]),
        ("s", TABLE["s"].to_pylist()),
        ("json ->> '$.a.b'", ["5", None, None, None]),
        ("d + 1", [Decimal("1.10"), Decimal("12345678901234567891.25"), None, Decimal("4.00")]),
        ("i::decimal(10, 2)", [Decimal("7.00"), Decimal("-7.00"), Decimal("0.00"), None]),
        ("big", [2**53 + 1, -(2**63), 2**63 - 1, None]),
        ("list_sum([i, j])", [9, -5, 3, 4]),
        ("year(day) * 100 + month(made)", [202402, 202301, None, None]),
        ("zoned", TABLE["zoned"].to_pylist()),
        ("hour(zoned)", [23, None, 23, None]),
        ("zoned = '2024-03-01 00:05:00+01'", [True, None, True, None]),
        ("nulls + 1", [None] * 4),
        ("null", [None] * 4),
    ],
)
def test_an_expression_means_what_it_says_in_sql(expression: str, expected: list) -> None:
    assert values(expression).to_pylist() == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        *[("i", "int64"), ("1", "int64"), ("list_sum([i, j])", "int64"), ("hash(i) % 8", "int64")],
        *[("f", "double"), ("i * 2.5", "double"), ("cast(i as float)", "double"), ("nulls", "null")],
        *[("t", "string"), ("c", "string"), ("i > 1", "bool"), ("d", "decimal128(30, 2)"), ("day", "date32[day]")],
        *[("made", "timestamp[us]"), ("zoned", "timestamp[us, tz=UTC]"), ("i::dec", "decimal128(18, 3)")],
    ],
)
def test_types_follow_from_the_columns_not_from_the_values(expression: str, expected: str) -> None:
    for table in (TABLE, TABLE[:1], TABLE[:0], TABLE[3:]):
        assert str(values(expression, table).type) == expected


@pytest.mark.parametrize(
    ("expression", "failing", "message"),
    [
        ("cast(t as bigint)", [0, 4], "Could not convert string 'abc' to INT64"),
        ("10 // n", [1], "Division by zero in expression (10 // n). Use TRY(...) to return NULL"),
        ("n / x", [], ""),
        ("ln(n)", [1, 2], "logarithm of zero"),
        ("n * 9223372036854775807", [0, 3], "Overflow in multiplication"),
        ("u + 0", [3], "18446744073709551615 not in range"),
        ("list_sum([9223372036854775807, n])", [0, 3], "out of range for the destination type INT64"),
        ("{'n': 1 // n, 'of': [t]}", [1], "Division by zero"),
    ],
)
def test_a_value_that_cannot_be_computed_costs_only_its_row(expression: str, failing: list[int], message: str) -> None:
    table = pa.table(
        {
            "t": ["abc", "1001", "2002", None, "3x5"],
            "n": [2, 0, -1, 4, None],
            "x": [math.nan, math.inf, 1.0, 2.0, None],
            "u": pa.array([1, 2, 3, 2**64 - 1, None], pa.uint64()),
        },
    )
    found = reasons(after(DeriveColumns(columns={"out": expression}), table))
    assert list(found) == [f"file{row}" for row in failing]
    assert all(reason.startswith(f"derive_columns: out: {expression!r}: ") for reason in found.values())
    assert message in next(iter(found.values()), "")
    assert not any("\n" in reason or "SET " in reason for reason in found.values())


BOMBS = [  # `n` is 2,000,000,000 in the second row
    "lpad(t, n::int, 'z')",
    "repeat(t, n)",
    "length(repeat(repeat(t, least(n, 50000)), least(n, 50000)))",
    "len(range(n))",
    "len(generate_series(1, n))",
    "len(list_resize([1], n))",
    "len([t for y in range(n)])",
    "array_to_string([repeat(t, 100000) for y in range(least(n, 200000))], ',')",
    "list_reduce([t for y in range(1 + n // 50000000)], lambda a, b: a || a)",
    "length(bitstring('1', n::int)::varchar)",
    "printf('%' || n || 'd', 1)",
    "format('{:' || n || '}', 1)",
    "replace(repeat(t, least(n, 100000)), t, repeat('y', least(n, 100000)))",
    "regexp_replace(repeat(t, least(n, 100000)), '', repeat('y', least(n, 100000)), 'g')",
]


def bomb_of_expressions(*expressions: str) -> Iterator[dict[str, list]]:
    """Yield the ids of the good rows, and the reasons of the bad, by expression."""
    table = pa.table({"t": ["a", "b"], "n": [3, 2_000_000_000]})
    applied(DeriveColumns(columns={"d": "t || n"}), named(table))
    yield {}
    outcomes = {}
    for expression in expressions:
        block = applied(DeriveColumns(columns={"d": expression}), named(table))
        outcomes[expression] = [blocks.live_rows(block)[0]["row_id"].to_pylist(), reasons(block)]
    yield outcomes


@pytest.mark.slow
def test_a_value_of_an_expression_that_takes_gigabytes_costs_its_row_and_is_never_held() -> None:
    outcomes = defused(bomb_of_expressions, *BOMBS)
    assert list(outcomes) == BOMBS
    for expression, (good, bad) in outcomes.items():
        assert (good, list(bad)) == (["file0"], ["file1"]), expression
        assert "expected data that take at most 640 MiB" in bad["file1"], expression


def test_later_columns_see_the_earlier_ones_and_may_replace() -> None:
    result = after(DeriveColumns(columns={"i": "coalesce(i, 0) + 1", "twice": "i * 2", "t": "length(t)"}))
    assert result["i"].to_pylist() == [8, -6, 1, 1]
    assert result["twice"].to_pylist() == [16, -12, 2, 2]
    assert result["t"].to_pylist() == [9, 5, 0, None]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("  i +", "at character 6: it ends too early"),
        *[(empty, "it ends too early") for empty in ("", "-- i", "()")],
        ("i > 1 i", 'at character 7: syntax error at or near "i"'),
        ("when > 1", "at character 1: .*a column whose name is a word of SQL takes double quotes"),
        (" t == 'Ä' and i >", "at character 18: it ends too early"),
        ("t = 'Äa' or lenght(t) > 2", r"at character 13: there is no function lenght \(did you mean length\?\)"),
        ("t = 'a", "at character 5: unterminated string literal"),
        # more than one expression
        *[(more, "expected one expression") for more in ("i), (j", "i); select (j", "i) union select (j")],
        ("i) from (select 1) as q where (true", "expected one expression"),
        # more than one row, and files
        ("sum(i) > 1", "sum is computed over several rows"),
        ("geomean(i)", "avg is computed over several rows"),
        ("list_transform(tags, lambda tag: max(tag))", "max is computed over several rows"),
        ("row_number() over ()", "has no window"),
        ("i > (select 1)", "has no subquery"),
        ("read_csv('/etc/passwd')", "read_csv makes a table"),
        ("unnest(tags)", "unnest makes a table"),
        ("*", "has no star"),
        ("#1", "has no positional reference"),
        ("?", "has no parameter"),
        # another value at another time
        *[(f"{name}()", f"{name} is not the same at every call") for name in ("random", "now", "error")],
        *[(clock, f"{clock} is not the same") for clock in ("current_date", "CURRENT_TIMESTAMP")],
        ("age(made)", "age is not the same at every call"),
        ("current_setting('threads')", "is not the same at every call"),
        ("getenv('HOME')", "there is no function getenv"),
        # habits of Python
        ("i is None", "at character 6: .*SQL has null for it"),
        ("i if b else j", "at character 3: .*case when condition then a else b end"),
        ("col('unit price')", 'write the name in double quotes, as in "unit price"'),
        ("cast_int(t)", "there is no function cast_int; write cast.x as bigint."),
        ("t.upper()", r"write upper\(t\) for t.upper\(\)"),
        ("__state = 0", "names with __ at the start are Overnight's"),
        ("(" * 500 + "i" + ")" * 500, "nested too deeply"),
        ("(" * 50_000, "nested too deeply"),
        ("- " * 5000 + "i", "nested too deeply"),
    ],
)
def test_what_is_no_expression_over_one_row_is_refused_at_construction(expression: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        FilterRows(expression=expression)
    with pytest.raises(ValidationError, match=f"column out: .*{message}"):
        DeriveColumns(columns={"out": expression})


def test_a_sum_of_many_columns_is_not_too_deep() -> None:
    assert values(" + ".join(["j"] * 250) + " > 600").to_pylist() == [False, False, True, True]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("prise > 1", r"needs a column 'prise' \(did you mean price\?\); the columns are"),
        ('"unit prise" > 1', r"needs a column 'unit prise' \(did you mean unit price\?\)"),
        ('t = "pear"', "needs a column 'pear'.* For a text write 'pear': double quotes are for names"),
        ("i == None", "needs a column 'None'.* SQL has null for it, as in x is null"),
        ("i", "expected true or false, found int64"),
        ("t > 1", "Cannot compare values of type VARCHAR"),
        ("t + '!' = ''", r"'\+\(VARCHAR, STRING_LITERAL\)'. .*SQL joins text with \|\|"),
        ("made - made", "expected values that a column can hold, found INTERVAL"),
        ("[made - made]", "expected values that a column can hold, found INTERVAL"),
        ("bytes is null", "column bytes holds bytes, which no expression reads"),
        ("image is null", "column image holds arrays, which no expression reads"),
        ("price > 1", "expected one column 'price', found Price and price, .*Rename one"),
        ("wide > 1", "Decimal"),
    ],
)
def test_columns_and_types_that_do_not_fit_stop_the_run_instead_of_costing_rows(expression: str, message: str) -> None:
    table = TABLE.append_column("bytes", pa.array([b"a"] * 4)).append_column("image", to_arrow(np.zeros((4, 2, 2))))
    table = table.append_column("Price", pa.array([1] * 4)).append_column("price", pa.array([2] * 4))
    table = table.append_column("wide", pa.array([Decimal(1)] * 4, pa.decimal256(50, 2)))
    with pytest.raises(ContractError, match=message) as caught:
        after(FilterRows(expression=expression), table)
    assert caught.value.stage == "preprocess"
    assert expression in str(caught.value)


def test_names_that_differ_in_case_come_through_if_no_expression_names_them() -> None:
    table = pa.table({"x": [1, 2], "X y": [b"a", b"b"], "x Y": [3, 4]})
    done = after(DeriveColumns(columns={"twice": "x * 2"}), table)
    assert blocks.visible(done).drop_columns(["row_id", "twice"]).equals(table)


def test_the_database_reaches_no_file_and_keeps_its_settings() -> None:
    for query in ("FROM read_text('/etc/hostname')", "COPY (SELECT 1) TO '/tmp/x.csv'", "SET threads = 2"):
        with pytest.raises(Exception, match=r"disabled|locked"):
            database().cursor().execute(query)
    in_sight = pa.table({"x": [1]})
    with pytest.raises(Exception, match="in_sight does not exist"):
        database().cursor().execute("FROM in_sight")
    assert len(in_sight) == 1


def test_an_expression_travels_and_a_forked_process_has_a_database_of_its_own() -> None:
    expression = pickle.loads(pickle.dumps(Expression("i + 1")))
    before = database()
    reads, writes = os.pipe()
    if not (child := os.fork()):
        made, _ = expression.evaluate(TABLE, "test", "preprocess")
        os.write(writes, b"own" if made[0].as_py() == 8 and database() is not before else b"not")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(reads, 5) == b"own"
    assert expression.evaluate(TABLE, "test", "preprocess")[0].to_pylist() == [8, -6, 1, None]


THREAD_THAT_OUTLIVES = """
import threading
from overnight.tasks.rows.expressions.parser import Expression
expression = Expression("x is null")
threading.Thread(target=threading.Event().wait, daemon=True).start()
threading.Thread(target=lambda: threading.Event().wait(), daemon=True).start()
"""


def test_a_process_with_threads_ends_without_a_report_about_duckdb() -> None:
    command = [sys.executable, "-c", THREAD_THAT_OUTLIVES]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
