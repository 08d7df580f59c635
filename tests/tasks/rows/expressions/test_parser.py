"""filter_rows and derive_columns: the grammar means what Python means, with SQL's nulls."""

import datetime
import math
import sys

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from overnight.tasks.errors import ContractError
from overnight.tasks.preprocess.steps.derive_columns import DeriveColumns
from overnight.tasks.preprocess.steps.filter_rows import FilterRows
from overnight.tasks.rows import apply, blocks
from overnight.tasks.rows.expressions.parser import Expression
from tests.tasks.blocks import source_block

TABLE = pa.table(
    {
        "i": pa.array([7, -7, 0, None], pa.int32()),
        "j": pa.array([2, 2, 3, 4], pa.uint8()),
        "f": pa.array([1.5, -2.5, 0.0, None], pa.float32()),
        "t": ["Apple pie", " pear", "", None],
        "b": [True, False, None, True],
        "unit price": [1, 2, 3, 4],
        "when": pa.array([datetime.datetime(2024, 2, 29, 23, 5), datetime.datetime(2023, 1, 1), None, None]),
        "day": pa.array([datetime.date(2024, 2, 29), datetime.date(2023, 1, 1), None, None]),
        "tags": [["a"], [], None, ["b", "c"]],
        "c": pa.array(["x", "y", "x", None]).dictionary_encode(),
    }
)


def value(expression: str, table: pa.Table = TABLE) -> list:
    return Expression(expression).evaluate(table, "test", "preprocess").to_pylist()


def block(table: pa.Table) -> pa.Table:
    return source_block(0, 0, table.append_column("row_id", pa.array([str(i) for i in range(len(table))])))


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("i + j * 2", [11, -3, 6, None]),
        ("i / j", [3.5, -3.5, 0.0, None]),
        ("i // j", [3, -4, 0, None]),
        ("i % j", [1, 1, 0, None]),
        ("-i ** 2", [-49, -49, 0, None]),
        ("f * 2", [3.0, -5.0, 0.0, None]),
        ("j - 3", [-1, -1, 0, 1]),
        ("j * 200", [400, 400, 600, 800]),
        ("t + '!'", ["Apple pie!", " pear!", "!", None]),
        ("1", [1, 1, 1, 1]),
        ("0 < j <= 3", [True, True, True, False]),
        ("i > 0", [True, False, False, None]),
        ("i == 7.0", [True, False, False, None]),
        ("t != ''", [True, True, False, None]),
        ("b and i > 0", [True, False, False, None]),
        ("b or i > 0", [True, False, None, True]),
        ("not b", [False, True, None, False]),
        ("i in [7, 0]", [True, False, True, None]),
        ("i not in (7, 0)", [False, True, False, None]),
        ("i in []", [False, False, False, None]),
        ("t in {'', ' pear'}", [False, True, True, None]),
        ("i is None", [False, False, False, True]),
        ("f is not None and b", [True, False, None, False]),
        ("col('unit price') * 2", [2, 4, 6, 8]),
        ("abs(i)", [7, 7, 0, None]),
        ("round(f)", [2, -2, 0, None]),
        ("round(f / 3, 2)", [0.5, -0.83, 0.0, None]),
        ("floor(f)", [1, -3, 0, None]),
        ("ceil(f)", [2, -2, 0, None]),
        ("sqrt(j * j)", [2.0, 2.0, 3.0, 4.0]),
        ("upper(strip(t))", ["APPLE PIE", "PEAR", "", None]),
        ("length(t)", [9, 5, 0, None]),
        ("length(tags)", [1, 0, None, 2]),
        ("contains(lower(t), 'p')", [True, True, False, None]),
        ("starts_with(t, 'Ap')", [True, False, False, None]),
        ("ends_with(t, 'pie')", [True, False, False, None]),
        ("matches(t, '^ ?p')", [False, True, False, None]),
        ("replace(t, 'p', 'b')", ["Abble bie", " bear", "", None]),
        ("substring(t, 0, 3)", ["App", " pe", "", None]),
        ("substring(t, -3)", ["pie", "ear", "", None]),
        ("concat(c, '-', cast_string(j))", ["x-2", "y-2", "x-3", None]),
        ("coalesce(i, f, -1)", [7.0, -7.0, 0.0, -1.0]),
        ("coalesce(t, 'none')", ["Apple pie", " pear", "", "none"]),
        ("if_else(b, 'yes', 'no')", ["yes", "no", "no", "yes"]),
        ("i if b else j", [7, 2, 3, None]),
        ("year(when)", [2024, 2023, None, None]),
        ("month(day) * 100 + day(day)", [229, 101, None, None]),
        ("hour(when)", [23, 0, None, None]),
        ("hour(day)", [0, 0, None, None]),
        ("when >= '2024-01-01'", [True, False, None, None]),
        ("day in ['2024-02-29']", [True, False, None, None]),
        ("cast_int(f)", [1, -2, 0, None]),
        ("cast_int(b)", [1, 0, None, 1]),
        ("cast_int(' 12 ') + 1", [13] * 4),
        ("cast_float('1e3')", [1000.0] * 4),
        ("cast_timestamp('2024-03-01T12:00:00+02:00')", [datetime.datetime(2024, 3, 1, 10)] * 4),
        ("cast_timestamp('2024-03-01')", [datetime.datetime(2024, 3, 1)] * 4),
        ("c == 'x'", [True, False, True, None]),
        ("is_nan(f)", [False, False, False, None]),
        ("9223372036854775807 > 1.5", [True] * 4),
    ],
)
def test_an_expression_means_what_it_says(expression, expected):
    assert value(expression) == (pytest.approx(expected) if isinstance(expected[0], float) else expected)


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("i + 1", "int64"),
        ("j + j", "int64"),
        ("i / 1", "double"),
        ("f", "float"),
        ("f + 1", "double"),
        ("round(f)", "int64"),
    ],
)
def test_types_follow_from_the_columns_not_from_the_values(expression, kind):
    for table in (TABLE, TABLE[:1], TABLE[:0], TABLE[3:]):
        assert str(Expression(expression).evaluate(table, "test", "preprocess").type) == kind


numbers = st.one_of(st.integers(-50, 50), st.floats(-50, 50, width=32))
leaves = st.one_of(st.sampled_from(["x", "y", "z"]), st.integers(0, 9).map(str), st.sampled_from(["0.5", "2.0"]))
arithmetic = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(lambda p: f"({' '.join(p)})"),
        inner.map(lambda e: f"(-{e})"),
        inner.map(lambda e: f"abs({e})"),
        st.tuples(inner, inner, inner).map(lambda p: f"({p[0]} if {p[1]} > 1 else {p[2]})"),
    ),
    max_leaves=6,
)
comparison = st.tuples(arithmetic, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), arithmetic).map(" ".join)
conditions = st.recursive(
    st.one_of(comparison, st.tuples(arithmetic, comparison).map(lambda p: f"{p[0]} < {p[1]}")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda p: f"({' '.join(p)})"),
        inner.map(lambda e: f"(not {e})"),
    ),
    max_leaves=3,
)


@settings(max_examples=200, deadline=None)
@given(
    st.one_of(arithmetic, conditions),
    st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9), st.floats(-9, 9)), min_size=1, max_size=4),
)
def test_every_row_is_what_python_computes_and_fails_where_python_fails(expression, cells):
    """Python's `and` and `or` stop early too, so a row fails here exactly when it fails there."""
    x, y, z = zip(*cells, strict=True)
    result = apply.apply(
        block(pa.table({"x": x, "y": y, "z": z})), "preprocess", DeriveColumns(columns={"out": expression}).build()
    )
    for row, cell in enumerate(cells):
        try:
            expected = eval(expression, {"abs": abs}, dict(zip("xyz", cell, strict=True)))
        except ZeroDivisionError:
            assert result["__state"][row].as_py() == blocks.QUARANTINED
            assert "divide by zero" in result["__error_message"][row].as_py()
            continue
        assert result["__error_message"][row].as_py() is None
        assert result["out"][row].as_py() == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_a_condition_keeps_true_and_drops_false_and_null():
    kept = apply.apply(block(TABLE), "preprocess", FilterRows(expression="i > -100 and b").build())
    assert kept["__state"].to_pylist() == [blocks.LIVE, blocks.FILTERED, blocks.FILTERED, blocks.FILTERED]


def test_a_guard_protects_what_stands_behind_it():
    table = pa.table({"x": [0, 2, None], "t": ["a", "5", "b"]})
    assert value("x != 0 and 10 / x > 1", table) == [False, True, None]
    assert value("x == 0 or 10 / x > 100", table) == [True, False, None]
    assert value("if_else(matches(t, '^[0-9]+$'), cast_int(t), -1)", table) == [-1, 5, -1]
    assert value("coalesce(x, cast_int(if_else(x is None, '7', t)))", table) == [0, 2, 7]


@pytest.mark.parametrize(
    ("expression", "failing", "message"),
    [
        ("cast_int(t)", [0, 3], "Failed to parse string: 'abc'"),
        ("10 // n", [1], "divide by zero"),
        ("10 % n", [1], "divide by zero"),
        ("1 / n", [1], "divide by zero"),
        ("sqrt(n)", [2], "square root of negative"),
        ("log(n)", [1, 2], "logarithm of"),
        ("n * 9223372036854775807", [0, 3], "overflow"),
        ("round(x)", [0, 1], "was truncated"),
    ],
)
def test_a_value_that_cannot_be_computed_costs_only_its_row(expression, failing, message):
    table = pa.table(
        {"t": ["abc", "1", "2", "3.5"], "n": [2, 0, -1, 4], "x": [math.nan, math.inf, 1.0, 2.0]},
    )
    result = apply.apply(block(table), "preprocess", DeriveColumns(columns={"out": expression}).build())
    assert [i for i, state in enumerate(result["__state"].to_pylist()) if state == blocks.QUARANTINED] == failing
    assert message in result["__error_message"][failing[0]].as_py()
    assert expression in result["__error_message"][failing[0]].as_py()


def test_later_columns_see_the_earlier_ones_and_may_replace():
    derive = DeriveColumns(columns={"i": "coalesce(i, 0) + 1", "twice": "i * 2", "t": "length(t)"})
    result = apply.apply(block(TABLE), "preprocess", derive.build())
    assert result["i"].to_pylist() == [8, -6, 1, 1]
    assert result["twice"].to_pylist() == [16, -12, 2, 2]
    assert result["t"].to_pylist() == [9, 5, 0, None]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("  i +", "at character 6: it ends too early"),
        ("", "at character 1: it ends too early"),
        ("i > 1 i", "at character 7: invalid syntax"),
        (" t == 'Ä' and i[0]", "at character 15: i.0. is not part"),
        ("i > 1 and lenght(t) > 2", r"at character 11: there is no function lenght \(did you mean length\?\)"),
        ("foo(i)", r"the functions are abs\(number\), .*if_else\(condition, a, b\)"),
        ("__import__('os').system('x')", "not part of the grammar"),
        ("i.real", "i.real is not part of the grammar"),
        ("[x for x in t]", "not part of the grammar"),
        ("lambda: 1", "not part of the grammar"),
        ("i & 1", "not part of the grammar"),
        ("i[0]", "not part of the grammar"),
        ("f'{i}'", "not part of the grammar"),
        ("i == None", "write x is None"),
        ("i is 3", "only None may follow"),
        ("i in j", "a list of literals"),
        ("i in [1, 'a']", "not a mixture"),
        ("i in [1, None]", "test for null with is None"),
        ("i in [j]", "expected a literal, found j"),
        ("contains(t)", r"contains is used as contains\(text, 'part'\)"),
        ("contains(t, c)", "expected a literal, found c"),
        ("round(f, '2')", "round is used as"),
        ("lower(t, t)", "expected a literal"),
        ("lower(text=t)", "not part of the grammar"),
        ("if_else(b, 1)", r"if_else is used as if_else\(condition, a, b\)"),
        ("matches(t, '(')", "at character 1: .*missing \\)"),
        ("99999999999999999999", "does not fit into 64 bits"),
        ("(" * 500 + "i" + ")" * 500, "nested"),
        ("-" * 5000 + "i", "nested"),
    ],
)
def test_what_the_grammar_does_not_have_is_refused_at_construction(expression, message):
    with pytest.raises(ValidationError, match=message):
        FilterRows(expression=expression)
    with pytest.raises(ValidationError, match=f"column out: .*{message}"):
        DeriveColumns(columns={"out": expression})


def test_how_deep_an_expression_may_be_is_no_matter_of_the_process():
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        with pytest.raises(ValidationError, match="nested"):
            FilterRows(expression="-" * 400 + "i > 0")
    finally:
        sys.setrecursionlimit(limit)
    FilterRows(expression=" + ".join(["i"] * 250) + " > 0")


@pytest.mark.parametrize("name", ["row_id", "uri", "__state", ""])
def test_columns_that_name_rows_cannot_be_derived(name):
    with pytest.raises(ValidationError, match="Choose another name"):
        DeriveColumns(columns={name: "1"})


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("prise > 1", r"needs a column 'prise'; the columns are"),
        ("col('unit prise') > 1", r"needs a column 'unit prise' \(did you mean unit price\?\)"),
        ("i", "expected true or false, found int32"),
        ("t > 1", "greater: string and int64 do not go together"),
        ("t * 2 > 1", r"\*: expected a number, found string"),
        ("i + t == 'a'", r"\+: expected text, found int32"),
        ("i and b", "expected true or false, found int32"),
        ("year(t) > 2000", "cast_timestamp makes one of text"),
        ("lower(i) == 'a'", "lower: expected text, found int32"),
        ("if_else(b, i, t) == 1", "int32 and string do not go together"),
        ("tags == 'a'", "do not go together"),
    ],
)
def test_columns_and_types_that_do_not_fit_stop_the_run_instead_of_costing_rows(expression, message):
    with pytest.raises(ContractError, match=message) as caught:
        apply.apply(block(TABLE), "preprocess", FilterRows(expression=expression).build())
    assert caught.value.stage == "preprocess"
    assert expression in str(caught.value)
