"""The words of a table of keys: types, bounds, defaults and examples."""

import pytest

from overnight.cli.reference.key_tables import default_words, one_line, row, table_of, type_words


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "integer", "exclusiveMinimum": 0}, "integer >\N{NO-BREAK SPACE}0"),
        ({"anyOf": [{"const": "auto"}, {"type": "number"}, {"type": "null"}]}, "`auto` or number"),
        ({"type": "array", "items": {"type": "string"}}, "list of texts"),
        ({"enum": ["a", "b"]}, "`a`, `b`"),
        ({"$ref": "#/$defs/Wait"}, "[mapping](#the-mapping-wait)"),
    ],
)
def test_a_type_is_written_in_words(schema: dict[str, object], words: str) -> None:
    assert type_words(schema, {"Wait": {"properties": {"file": {}}}}) == words


def test_a_default_is_a_value_with_its_unit() -> None:
    assert [default_words(value) for value in (None, [], 2**27, 1.0)] == [
        "optional",
        "empty",
        "`134217728` (128 MiB)",
        "`1`",
    ]


def test_a_bar_does_not_end_a_cell_and_code_has_no_escape() -> None:
    assert one_line("a | b\n<c> `*`") == "a \\| b &lt;c> `*`"


def test_a_key_without_a_description_is_refused() -> None:
    assert row("a", {"type": "string", "description": "Text.", "examples": ["x"]}, True, {}) == (
        "| `a` | text; **required** | Text. Example: `x` |"
    )
    with pytest.raises(ValueError, match="expected a description of every key of a job file, found none of a"):
        row("a", {"type": "string"}, True, {})


def test_a_mapping_without_keys_has_no_table() -> None:
    assert list(table_of({"properties": {}})) == []
