"""Reasons of quarantined rows that differ only in numbers, names and quoted values are one."""

import pytest

from overnight.flows.report.past import SHOWN_ROWS, group_reasons


def row(message: str, row_id: str = "a.png", **more: str) -> dict[str, str]:
    return {"row_id": row_id, "uri": f"/in/{row_id}", "stage": "infer", "error_type": "ValueError"} | {
        "error_message": message,
        **more,
    }


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("found 825 bytes", "found 1,024 bytes"),
        ("no digit in 'a.png'", 'no digit in "b.png"'),
        ("begins with b'\\x00'", "begins with b'abc'"),
        ("at 0x7f00aa", "at 0x10"),
        ("3.5e-05 is too small", "-2 is too small"),
        ("same\nline 1 of a trace", "same\nanother trace"),
    ],
)
def test_reasons_that_differ_in_values_are_one(first: str, second: str) -> None:
    (reason,) = group_reasons([row(first), row(second)])
    assert (reason.count, reason.message) == (2, first)


def test_names_of_the_row_itself_do_not_make_another_reason() -> None:
    rows = [row(f"cannot open /in/{name} ({name})", name) for name in ("a b.png", "c.png")]
    assert [reason.count for reason in group_reasons(rows)] == [2]


def test_another_stage_type_or_word_is_another_reason() -> None:
    rows = [
        row("too bright"),
        row("too dark"),
        row("too bright", stage="preprocess"),
        row("too bright", error_type="E"),
    ]
    assert [reason.count for reason in group_reasons(rows)] == [1, 1, 1, 1]


def test_the_most_frequent_reason_comes_first_with_a_few_rows() -> None:
    reasons = group_reasons([row("rare"), *(row(f"often {number}", f"{number}") for number in range(9))])
    assert [reason.count for reason in reasons] == [9, 1]
    assert [shown["row_id"] for shown in reasons[0].rows] == ["0", "1", "2", "3"]
    assert len(reasons[0].rows) == SHOWN_ROWS
