"""Each column beside the previous partition and the mean of the last ones, with drift marked as checks.drift does."""

import pyarrow as pa

from overnight.flows.report.columns import Figure, as_json, compare_columns
from overnight.tasks.write.checks.column_statistics import describe, summary
from overnight.tasks.write.kinds import Checks


def receipt(**columns: list[object]) -> dict[str, object]:
    return {"columns": summary(describe(pa.table(columns)), ())}


def test_a_column_is_beside_the_previous_partition_and_the_mean_of_all() -> None:
    earlier = [receipt(x=[2.0, 4.0, None]), receipt(x=[4.0, 6.0, 8.0])]
    (column,) = compare_columns(receipt(x=[1.0, 2.0, 3.0]), earlier, Checks())
    assert column.figures[0] == Figure("without a value", 0.0, [1 / 3, 0.0], "share")
    assert column.figures[1] == Figure("mean", 2.0, [3.0, 6.0])
    assert (column.figures[1].before, column.figures[1].mean) == (3.0, 4.5)


def test_shares_include_values_that_only_the_previous_partition_has() -> None:
    (column,) = compare_columns(receipt(c=["a"] * 4), [receipt(c=["a", "b"] * 2)], Checks())
    shares = [(figure.name, figure.now, figure.before) for figure in column.figures if figure.kind == "value"]
    assert shares == [
        ("a", 1.0, 0.5),
        ("b", 0.0, 0.5),
    ]


def test_a_bound_of_the_job_marks_drift_and_the_column_comes_first() -> None:
    now, before = receipt(a=[1.0, 2.0], b=[1.4, 2.4]), [receipt(a=[1.0, 2.0], b=[1.0, 2.0])]
    columns = compare_columns(now, before, Checks.model_validate({"drift": {"b": 0.5}}))
    assert [(column.name, column.has_drift) for column in columns] == [("b", True), ("a", False)]
    assert (columns[0].drift[0].bound, columns[0].drift[0].is_checked) == (0.5, True)
    assert not any(
        column.has_drift for column in compare_columns(now, before, Checks.model_validate({"drift": {"b": 1}}))
    )


def test_without_a_bound_of_the_job_chance_marks_no_drift() -> None:
    few, more = receipt(c=[*"abcdefgh"] * 3), receipt(c=[*"bcdefghi"] * 3)
    assert not compare_columns(few, [more], Checks())[0].has_drift
    few, more = receipt(x=[*map(float, range(20))]), receipt(x=[*map(float, range(4, 24))])
    assert not compare_columns(few, [more], Checks())[0].has_drift  # by 0.7 standard deviations
    many, more = receipt(x=[*map(float, range(200))]), receipt(x=[*map(float, range(40, 240))])
    assert compare_columns(many, [more], Checks())[0].has_drift
    many, other = receipt(c=["a", "b"] * 5000), receipt(c=["a", "b", "b"] * 5000)
    assert compare_columns(many, [other], Checks())[0].has_drift


def test_a_first_run_and_a_receipt_without_columns_have_nothing_to_compare() -> None:
    (column,) = compare_columns(receipt(x=[1.0]), [], Checks())
    assert (column.drift, column.figures[1].before) == ([], None)
    assert compare_columns({}, [receipt(x=[1.0])], Checks()) == []


def test_as_json_a_column_has_the_figures_and_the_drift_of_both_results() -> None:
    [column] = compare_columns(receipt(x=[1.0, 3.0]), [receipt(x=[0.0, 2.0])], Checks(drift={"x": 0.5}))
    found = as_json(column)
    assert found["figures"]["mean"] == {"kind": "number", "a": 1.0, "b": 2.0}
    assert found["drift"] == [{"figure": "mean", "distance": 1.0, "bound": 0.5, "is_checked": True, "is_marked": True}]
