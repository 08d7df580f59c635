"""A value that no column can have is refused with its column, its place in the values and the remedy."""

import pytest

from overnight.tasks.rows.unstorable import Unstorable, refuse_beyond, require_one_kind


def test_values_of_two_kinds_are_refused_with_their_place_in_dicts_and_lists() -> None:
    with pytest.raises(Unstorable) as caught:
        require_one_kind([{"a": [{"b": "x"}]}, {"a": [{"b": b"x"}, {}]}], "")
    expected = "column 'y.a.b': found bytes and texts. Use one type, or None for no value."
    assert str(caught.value.in_column("y")) == expected


def test_values_of_one_kind_and_numbers_of_64_bits_pass() -> None:
    require_one_kind([{"a": 1}, {"a": 1.5}, None], "")
    refuse_beyond([[2**63 - 1, -(2**63)], {"a": "x"}])
