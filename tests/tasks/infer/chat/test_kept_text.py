"""The choice of one text of a row."""

from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.errors import RowError
from overnight.tasks.infer.chat.kept_text import Kept, keep_rule

KIND = pa.struct([("mood", pa.string()), ("stars", pa.int64()), ("author", pa.struct([("name", pa.string())]))])


def choose(keep: str, values: dict[int, Any], kind: pa.DataType | None = KIND, count: int = 4) -> Kept:
    rule = keep_rule(keep)
    assert rule is not None
    rule.refuse_fields(kind)
    return rule.choose(values, kind, count)


def value(mood: str | None, stars: int | None = None, name: str = "a") -> dict[str, Any]:
    return {"mood": mood, "stars": stars, "author": {"name": name}}


def test_the_most_frequent_value_is_kept_by_its_first_text() -> None:
    values = {0: value("bad"), 2: value("good", 1), 3: value("good", 2)}
    assert choose("majority(mood)", values) == Kept(2, 0.5)
    assert choose("majority", values) == Kept(0, 0.25)
    assert choose("majority(author)", values) == Kept(0, 0.75)
    assert choose("majority", {0: "a", 1: "b", 2: "b"}, None) == Kept(1, 0.5)


def test_of_equally_frequent_values_the_first_is_kept() -> None:
    assert choose("majority(mood)", {0: value("good"), 1: value("bad"), 2: value("bad"), 3: value("good")}) == Kept(
        0, 0.5
    )


def test_null_is_a_value_of_a_majority_and_no_result_of_an_expression() -> None:
    assert choose("majority(mood)", {0: None, 1: None, 2: value("a")}) == Kept(0, 0.5)
    assert choose("best(stars)", {0: None, 1: value("a", -1)}) == Kept(1, None)
    assert choose("majority(mood)", {0: value("bad"), 1: value(None), 2: value(None)}) == Kept(1, 0.5)


def test_the_best_text_has_the_largest_result_and_is_the_first_with_it() -> None:
    values = {1: value("a", 3), 2: value("b", 5), 3: value("c", 5)}
    assert choose("best(stars)", values) == Kept(2, None)
    assert choose("best(-STARS)", values) == Kept(1, None)
    assert choose("best(length(author.name) + (mood = 'c')::int)", values) == Kept(3, None)


def test_a_text_without_a_result_is_not_the_best() -> None:
    values = {0: value("a", None), 1: value("x", 1), 2: value("7", 1)}
    assert choose("best(stars)", values) == Kept(1, None)
    assert choose("best(cast(mood as bigint))", values) == Kept(2, None)


@pytest.mark.parametrize("keep", ["majority(Mood)", "majority(author.name)", "best(star)"])
def test_a_field_that_the_schema_lacks_is_refused(keep: str) -> None:
    with pytest.raises(ValueError, match="the fields are mood, stars, author"):
        choose(keep, {0: value("a")})


@pytest.mark.parametrize(("keep", "reason"), [("best(stars)", "null for each text"), ("best(mood::int)", "Could not")])
def test_a_row_fails_if_no_text_has_a_result(keep: str, reason: str) -> None:
    with pytest.raises(RowError, match=rf"keep: expected a value of .* for one of the texts, found .*{reason}"):
        choose(keep, {0: value("a", None), 1: value("b", None)})


@pytest.mark.parametrize(
    ("keep", "kind", "reason"),
    [
        ("best(author)", KIND, r"a number or a text, found struct<name"),
        ("best([stars])", KIND, "a number or a text, found list"),
        ("best(mood * 2)", KIND, r"keep: .*mood \* 2"),
        ("best(1)", None, "the fields are none"),
    ],
)
def test_an_expression_whose_values_have_no_order_is_refused_before_the_run(keep: str, kind: Any, reason: str) -> None:
    rule = keep_rule(keep)
    assert rule is not None
    with pytest.raises(ValueError, match=reason):
        rule.refuse_fields(kind)
