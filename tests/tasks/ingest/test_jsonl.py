"""JSON Lines as nobody wants them."""

import gzip
import json
import random
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tasks.errors import InputError
from tasks.ingest.jsonl import Jsonl
from tests.tasks.ingest.conftest import Read, read_all

Reader = Callable[..., Read]
MANY = b'{"a":1}\n' * 1500  # more than types are inferred from


def test_rows_are_named_by_their_line_and_keep_their_keys(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'{"x":1,"t":"one"}\n{"t":"two"}\n{"x":3,"y":[1.5]}'})
    assert list(found.good) == ["a.jsonl#0", "a.jsonl#1", "a.jsonl#2"]
    assert (found.column("x"), found.column("t")) == ([1, None, 3], ["one", "two", None])
    assert found.column("y") == [None, None, [1.5]]


def test_byte_order_marks_blank_lines_and_carriage_returns_are_no_rows(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'\xef\xbb\xbf{"a":1}\r\n\r\n \n{"a":2}\r\n', "b.json": b"", "c.ndjson": b"\n"})
    assert found.column("a") == [1, 2]
    assert found.counts == {"a.jsonl": 2, "b.json": 0, "c.ndjson": 0}


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"null", b"[1]", b'{"a":NaN}', b'{"a":"caf\xe9"}', b'{"a":"\\ud800"}', b'{"a":' + b"[" * 3000,
        b'{"__state":0}', b'{"a":"x"}', b'{"a":[1]}', b'{"a":{"b":1}}', b'{"a":true}', b'{"a":2.5}', b'{"a":1e30}',
        b'{"a":18446744073709551615}', b'{"a":99999999999999999999999}', b"\x00",
    ],
)  # fmt: skip
def test_a_line_that_is_no_such_object_is_quarantined_alone(read: Reader, line: bytes):
    found = read(Jsonl, {"a.jsonl": MANY + line + b'\n{"a":4}\n', "b.jsonl": line})
    assert set(found.bad) == {"a.jsonl#1500", "b.jsonl#0"}
    assert found.good["a.jsonl#1501"]["a"] == 4


def test_of_a_key_named_twice_the_last_counts_as_in_every_parser(read: Reader):
    assert read(Jsonl, {"a.jsonl": b'{"a":1,"a":2}\n'}).column("a") == [2]


@pytest.mark.parametrize(
    ("lines", "good"),
    [
        ([1, 2.5, "x", None, 3], [1.0, 2.5, None, 3.0]),
        (["n/a", 1, 2], [1, 2]),
        ([True, False, 1], [True, False]),
        ([2**64 - 1, 1], [2**64 - 1, 1]),
        ([2**53 + 1, 0.5], [2**53 + 1]),
        ([[], [1], ["x"], [None]], [[], ["x"], [None]]),
        ([{"p": 1}, {"q": "x"}, 5], [{"p": 1, "q": None}, {"p": None, "q": "x"}]),
        ([1.0, 2.0], [1.0, 2.0]),
    ],
)
def test_a_column_has_the_type_of_most_of_its_first_values(read: Reader, lines: list, good: list):
    content = "\n".join(json.dumps({"a": value}) for value in lines)
    found = read(Jsonl, {"a.jsonl": content.encode()})
    assert found.column("a") == good
    assert len(found.bad) == len(lines) - len(good)


def test_a_fraction_in_a_column_of_whole_numbers_is_never_cut_off(read: Reader):
    found = read(Jsonl, {"a.jsonl": MANY + b'{"a":1.5}\n{"a":2.0}\n'})
    assert "a.jsonl#1500" in found.bad
    assert found.good["a.jsonl#1501"]["a"] == 2


def test_a_nested_key_that_the_type_lacks_is_never_dropped_in_silence(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'{"a":{"x":1}}\n' * 1500 + b'{"a":{"x":2,"y":3}}\n{"a":{}}\n{"a":null}\n'})
    assert list(found.bad) == ["a.jsonl#1500"]
    assert found.good["a.jsonl#1501"]["a"] == {"x": None}


def test_a_key_first_met_late_is_text_so_that_no_two_files_can_disagree_about_it(read: Reader):
    found = read(Jsonl, {"a.jsonl": MANY + b'{"z":3}\n{"z":"q"}\n', "b.jsonl": b'{"z":{"b":[1]}}\n{"a":1}\n'})
    assert [row["z"] for row in found.good.values() if row.get("z")] == ["3", "q", '{"b":[1]}']
    assert not found.bad


def test_objects_without_keys_are_rows_all_the_same(read: Reader):
    assert read(Jsonl, {"a.jsonl": b"{}\n{}\n"}).counts == {"a.jsonl": 2}


def test_values_nested_deeper_than_parquet_can_be_read_are_text_or_quarantined(read: Reader):
    deep, deeper = ({"a": json.loads("[" * depth + "]" * depth)} for depth in (100, 700))
    found = read(Jsonl, {"a.jsonl": f"{json.dumps(deep)}\n{json.dumps(deeper)}\n".encode()})
    assert found.good["a.jsonl#0"]["a"] == json.dumps(deep["a"])


def test_columns_with_overnight_s_names_are_renamed(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'{"row_id":7,"uri":"u"}\n'})
    assert (found.good["a.jsonl#0"]["source_row_id"], found.good["a.jsonl#0"]["source_uri"]) == (7, "u")
    with pytest.raises(InputError, match="several named source_row_id"):
        read(Jsonl, {"a.jsonl": b'{"row_id":7,"source_row_id":8}\n'})


def test_a_gzip_that_breaks_off_keeps_every_whole_line_before_the_break(read: Reader):
    draw = random.Random(0)
    whole = b"".join(b'{"i":%d,"t":%d}\n' % (i, draw.randrange(10**9)) for i in range(60_000))
    lines = [json.loads(line) for line in whole.splitlines()]
    found = read(Jsonl, {"a.jsonl.gz": gzip.compress(whole)[:300_000], "b.JSONL.GZ": gzip.compress(b'{"i":1}')})
    assert len(found.bad) == 1
    kept = [row for name, row in found.good.items() if name.startswith("a.")]
    assert len(kept) % 4096 != 0
    assert len(kept) > 30_000
    assert all((row["i"], row["t"]) == (line["i"], line["t"]) for row, line in zip(kept, lines, strict=False))
    assert found.good["b.JSONL.GZ#0"]["i"] == 1


def test_a_last_line_that_breaks_off_is_quarantined_alone(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'{"a":1}\n{"a":2'})
    assert (list(found.good), list(found.bad)) == (["a.jsonl#0"], ["a.jsonl#1"])


def test_huge_lines_are_read_whole(read: Reader):
    line = json.dumps({"a": "x" * (5 * 2**20)}).encode()
    assert [len(text) for text in read(Jsonl, {"a.jsonl": b"\n".join([line] * 5)}).column("a")] == [5 * 2**20] * 5


pieces = [
    b'{"a":1}',
    b'{"b":[1,{"c":null}]}',
    b'{"b":{}}',
    b"{",
    b"}",
    b'"',
    b"\n",
    b"\r",
    b"\xff",
    b"null",
    b"\n{}\n",
    b",",
    b"1e999",
]


@given(st.lists(st.sampled_from(pieces), max_size=30).map(b"".join), st.booleans(), st.integers(0, 200))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_the_bytes_every_line_is_settled_once(tmp_path, content: bytes, packed: bool, cut: int):
    (tmp_path / "a.jsonl").write_bytes(content)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(content)[: cut if packed else None])
    read_all(Jsonl(path=str(tmp_path)))
