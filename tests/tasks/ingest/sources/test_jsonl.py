"""JSON Lines as nobody wants them."""

import datetime
import gzip
import json
import random
from collections.abc import Callable

import pytest

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.sources.jsonl import Jsonl
from tests.tasks.ingest.conftest import Read, overwritten

Reader = Callable[..., Read]
MANY = b'{"a":1}\n' * 1500  # more than types are inferred from


def test_byte_order_marks_blank_lines_and_carriage_returns_are_no_rows(read: Reader):
    found = read(
        Jsonl, {"a.jsonl": b'\xef\xbb\xbf{"a":1}\r\n\r\n \n{"a":1,"a":2}\r\n{}', "b.json": b"", "c.ndjson": b"\n"}
    )
    assert found.column("a") == [1, 2, None], "of a key that is there twice the last one, as in every parser"
    assert found.counts == {"a.jsonl": 3, "b.json": 0, "c.ndjson": 0}
    found = read(Jsonl, {"a.jsonl": '{"a":"é"}\n{"a":"x"}'.encode("utf-16")}, encoding="utf-16")
    assert found.column("a") == ["é", "x"]


def test_a_byte_order_mark_is_no_data_also_if_a_read_ends_inside_it(read: Reader):
    mark, line = b"\xef\xbb\xbf", b'{"a":1}'
    found = read(
        Jsonl,
        {
            "a.jsonl.gz": gzip.compress(mark[:1]) + gzip.compress(mark[1:] + line + b"\n" + line),
            "b.jsonl.gz": gzip.compress(mark) + gzip.compress(line),
        },
    )
    assert (found.column("a"), found.bad) == ([1, 1, 1], {})


def test_a_key_without_a_name_is_a_column(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'{"":1,"b":2}\n{"b":3}\nx\n'})
    assert (found.column(""), found.column("b"), list(found.bad)) == ([1, None], [2, 3], ["a.jsonl#2"])


NO_OBJECTS = {
    b"{": "expected a line that is a JSON object, found '{': unexpected end of data",
    b"null": "expected a line that is a JSON object, found null",
    b'[{"a":1},{"a":2}]': "write one object per line, for example with jq -c '.[]' for an array",
    b'{"a":1}{"a":2}': "unexpected content after document: line 1 column 8",
    b'{"a":NaN}': "expected JSON, which has no NaN, found",
    b'{"a":[-Infinity]}': "expected JSON, which has no -Infinity, found",
    b'{"a":1e999}': "number is infinity",
    b'{"a":"caf\xe9"}': """expected text in UTF-8, found '{"a":"caf\ufffd"}'""",
    b'{"a":"\\ud800"}': "no low surrogate in string",
    b'{"a":' + b"[" * 3000: "depth limit exceeded",
    b'{"new":' + b"[" * 700 + b"]" * 700 + b"}": "column new: expected a value with less nesting",
    b'{"__state":0}': "the key __state is reserved; rename it in the source",
    b'{"__left_out_x":0}': "the key __left_out_x is reserved; rename it in the source",
    b'{"a":"x"}': 'column a: expected int64, found "x"',
    b'{"a":[1]}': "column a: expected int64, found [1]",
    b'{"a":{"b":null}}': 'column a: expected int64, found {"b": null}',
    b'{"a":true}': "column a: expected int64, found true",
    b'{"a":2.5}': "column a: expected int64, found 2.5",
    b'{"a":18446744073709551615}': "column a: expected int64, found 18446744073709551615",
    b'{"a":99999999999999999999999}': "column a: expected int64, found 99999999999999999999999",
}


@pytest.mark.parametrize(("line", "reason"), NO_OBJECTS.items(), ids=[str(line[:20]) for line in NO_OBJECTS])
def test_a_line_that_is_no_such_object_is_quarantined_alone_with_the_reason(read: Reader, line: bytes, reason: str):
    found = read(Jsonl, {"a.jsonl": MANY + line + b'\n{"a":4}\n', "b.jsonl": line})
    assert set(found.bad) == {"a.jsonl#1500", "b.jsonl#0"}
    assert all(reason in told for told in found.bad.values()), found.bad
    assert found.column("a") == [1] * 1500 + [4]


PACKED = gzip.compress(b"".join(b'{"a":%d}\n' % random.Random(n).randrange(10**9) for n in range(2000)), mtime=0)
HOSTILE = {
    "sum.jsonl.gz": (overwritten(PACKED, -8, -4), 2000, "expected a whole gzip file: CRC check failed"),
    "packed-twice.jsonl.gz": (gzip.compress(PACKED[:9], mtime=0), 0, r"expected text in UTF-8, found '\x1f"),
    "utf-16.json": ('{"a":1}\n{"a":2}\n'.encode("utf-16"), 0, "found the byte order mark of UTF-16"),
    "cut.ndjson": (b'{"a":1}\n{"a":2', 1, """expected a line that is a JSON object, found '{"a":2': unexpected end"""),
    "array-of-none.json": (b'[\n{"a":1},\n', 1, "expected"),
}


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([1, 2.5, None], [1.0, 2.5, None]),
        ([[], [1], ["x"], [None]], ["[]", "[1]", '["x"]', "[null]"]),
        (["hi", [{"text": "x"}], {"text": "y"}], ["hi", '[{"text":"x"}]', '{"text":"y"}']),
        ([{"p": 2**64 + 1}, {"p": 1}], ['{"p":18446744073709551617}', '{"p":1}']),
        ([{"p": {}}, {"p": {}, "q": 1}], ['{"p":{}}', '{"p":{},"q":1}']),
        ([[{}], []], ["[{}]", "[]"]),
        ([{}, {"p": 1}], [{"p": None}, {"p": 1}]),
        ([1.0, 2.0], [1.0, 2.0]),
    ],
)
def test_a_column_has_the_type_that_holds_all_of_its_first_values(read: Reader, values: list, kept: list):
    found = read(Jsonl, {"a.jsonl": "\n".join(json.dumps({"a": value}) for value in values).encode()})
    assert (found.column("a"), found.bad) == (kept, {})


def test_nan_and_infinity_are_numbers_if_the_job_allows_them(read: Reader):
    lines = ['{"a":NaN,"b":{"c":[Infinity]},"t":"x"}', '{"a":1.5,"b":null,"t":-Infinity}', '{"i":7}']
    found = read(Jsonl, {"a.jsonl": "\n".join(lines).encode()}, allow_nan=True)
    assert str(found.column("a")) == "[nan, 1.5, None]"
    assert found.column("b") == [{"c": [float("inf")]}, None, None]
    assert found.column("t") == ["x", "-Infinity", None]


def test_nan_is_no_whole_number_and_is_text_in_a_key_that_is_met_late(read: Reader):
    found = read(Jsonl, {"a.jsonl": MANY + b'{"a":NaN}\n{"late":[NaN]}'}, allow_nan=True)
    assert (list(found.bad), found.good["a.jsonl#1501"]["late"]) == (["a.jsonl#1500"], "[NaN]")


LATE: list[tuple[str, str, str | None]] = [  # the first values, a late one, and what became of it; None: quarantined
    ("1.5", "18446744073709551617", None),
    ("[1]", "[-9223372036854775809]", None),
    ("1", "1.5", None),
    ("1", "2.0", "2"),
    ('{"x":1}', '{"x":2,"y":3}', None),
    ('{"x":1}', "{}", "{'x': None}"),
]


@pytest.mark.parametrize(("usual", "late", "kept"), LATE)
def test_a_late_value_that_the_type_of_its_column_does_not_hold_is_quarantined_and_never_cut(
    read: Reader, usual: str, late: str, kept: str | None
):
    found = read(Jsonl, {"a.jsonl": (f'{{"a":{usual}}}\n' * 1500 + f'{{"a":{late}}}\n{{"a":null}}').encode()})
    values = [str(value) for value in found.column("a")[1500:]]
    assert values == ([kept, "None"] if kept else ["None"])
    assert list(found.bad) == ([] if kept else ["a.jsonl#1500"])


def test_declared_types_hold_and_what_does_not_fit_is_quarantined(read: Reader):
    lines = [
        {"a": 1, "d": "2024-01-31", "i": "7", "n": 2.0},
        {"a": {"b": []}, "d": None, "i": 8},
        {"a": "x", "d": "soon"},
    ]
    types = {"a": "string", "d": "date32", "i": "int16", "n": "int64"}
    found = read(Jsonl, {"a.jsonl": "\n".join(map(json.dumps, lines)).encode()}, types=types)
    assert (found.column("a"), found.column("i")) == (["1", '{"b":[]}'], [7, 8])
    assert (found.column("d"), found.column("n")) == ([datetime.date(2024, 1, 31), None], [2, None])
    assert found.bad == {"a.jsonl#2": 'column d: expected date32[day], found "soon"; see source.types'}


def test_a_declared_type_for_a_key_that_is_not_there_names_those_that_are(read: Reader):
    with pytest.raises(InputError, match=r"source\.types: no key z; the keys are a, b"):
        read(Jsonl, {"a.jsonl": b'{"a":1,"b":2}\n'}, types={"z": "int64"})
    found = read(Jsonl, {"a.jsonl": MANY + b'{"z":"7"}'}, types={"z": "int64"})
    assert found.good["a.jsonl#1500"]["z"] == 7


def test_an_array_has_a_row_for_each_of_its_objects_on_one_line_and_on_several(read: Reader):
    rows = [{"a": 1, "t": "x\ny, [z]"}, {"a": 2, "t": None}, {"a": 3, "t": "é"}]
    lines = "[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n"
    found = read(Jsonl, {"one.json": json.dumps(rows).encode(), "rows.jsonl": lines.encode()})
    assert [{"a": row["a"], "t": row["t"]} for row in found.good.values()] == rows * 2
    assert not found.bad


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("size", [1, 2 * 2**20])  # the file is read in pieces of a mebibyte
def test_an_object_over_several_lines_is_a_row_whatever_its_size_and_its_last_line(read: Reader, size: int, end: str):
    objects = [{"a": 1, "t": ["x" * 1000] * (size // 1000)}, {"a": 2, "t": []}]
    contents = {"one.json": objects[:1], "two.json": objects}
    files = {name: "\n".join(json.dumps(row, indent=1) for row in some) + end for name, some in contents.items()}
    files["array.json"] = json.dumps(objects, indent=2) + end
    found = read(Jsonl, {name: content.encode() for name, content in files.items()})
    assert found.counts == {"array.json": 2, "one.json": 1, "two.json": 2}
    assert list(found.good) == ["array.json#0", "array.json#1", "one.json#0", "two.json#0", "two.json#1"]
    assert found.column("a") == [1, 2, 1, 1, 2]
    assert [len(row["t"]) for row in found.good.values()] == [size // 1000, 0, size // 1000, size // 1000, 0]


def test_an_array_without_items_has_no_row(read: Reader):
    files = {"a.json": b"[]", "b.json": b"[\n]", "c.json": b"[ \n\n ]\n"}
    assert read(Jsonl, files).counts == dict.fromkeys(files, 0)


def test_a_line_that_breaks_off_inside_an_object_costs_itself_and_no_document_is_made_of_the_next(read: Reader):
    found = read(Jsonl, {"a.jsonl": b'{"a":\n{"a":2}\n', "b.jsonl": b'{"a":[\n{"a":3}\n{"a":4}\n'})
    assert found.column("a") == [2, 3, 4]
    assert set(found.bad) == {"a.jsonl#0", "b.jsonl#0"}


BROKEN_DOCUMENTS = {
    b'[\n{"a":1},\n{"a":': (1, 'expected JSON, found \'{"a":'),
    b'[\n{"a":1},\n{"a":2}': (2, "expected the end of a JSON array, found ''"),
    b'[\n{"a":1}\n]\n{"a":2}': (1, 'expected the end of a JSON array, found \']\\n{"a":2}'),
    b'[{"a":1},\n' + b'{"a":' * 100_000: (1, "expected JSON, found"),
    b'{\n"a":1}\n{"a":\xff}': (0, "expected a JSON document in UTF-8"),
    b"[\n": (0, "write one object per line"),
    b'{\n"a":': (0, "write one object per line"),
}


@pytest.mark.parametrize("content", BROKEN_DOCUMENTS, ids=[str(content[:20]) for content in BROKEN_DOCUMENTS])
def test_of_a_broken_document_the_rows_before_the_damage_stay(read: Reader, content: bytes):
    count, told = BROKEN_DOCUMENTS[content]
    found = read(Jsonl, {"a.json": content})
    assert len(found.good) == count
    assert told in next(iter(found.bad.values()))


@pytest.mark.parametrize("depth", [300, 1023, 100_000])
def test_a_value_nested_beyond_all_bounds_costs_its_row(read: Reader, depth: int):
    lists, objects = b"[" * depth + b"]" * depth, b'{"b":' * depth + b"1" + b"}" * depth
    lines = [b'{"a":1}', b'{"a":%s}' % lists, b'{"a":%s}' % objects, b'{"c":%s}' % lists, b'{"a":2}']
    long = [b'{"x":18446744073709551616,"c":%s}' % objects]
    for content in (lines + long, long + lines[::-1], lines[1:] + long):
        found = read(Jsonl, {"a.jsonl": b"\n".join(content)})
        assert len(found.bad) == 4
        assert {"1", "2"} >= {str(row["a"]) for row in found.good.values()}


def test_a_key_first_met_late_is_text_so_that_no_two_files_can_disagree_about_it(read: Reader):
    found = read(Jsonl, {"a.jsonl": MANY + b'{"z":3}\n{"z":"q"}\n', "b.jsonl": b'{"z":{"b":[1]}}\n{"a":1}\n'})
    assert [row["z"] for row in found.good.values() if row.get("z")] == ["3", "q", '{"b":[1]}']
    assert not found.bad


def test_values_nested_deeper_than_parquet_can_be_read_are_text_or_quarantined(read: Reader):
    deep, deeper = ({"a": json.loads("[" * depth + "]" * depth)} for depth in (100, 700))
    found = read(Jsonl, {"a.jsonl": f"{json.dumps(deep)}\n{json.dumps(deeper)}\n".encode()})
    assert found.good["a.jsonl#0"]["a"] == json.dumps(deep["a"])


@pytest.mark.parametrize(("length", "place"), [(100, 0), (100, 2), (3 * 2**20, 1), (3 * 2**20, 3)])
def test_a_line_beyond_the_bound_is_quarantined_alone(read: Reader, length: int, place: int):
    lines = [b'{"a":"%d"}' % n for n in range(3)]
    lines.insert(place, json.dumps({"a": "x" * length}).encode())
    for end in (b"\n", b""):
        found = read(Jsonl, {"a.jsonl": b"\n".join(lines) + end}, max_row_bytes=50)
        assert [row["a"] for row in found.good.values()] == ["0", "1", "2"]
        [(name, reason)] = found.bad.items()
        assert name == f"a.jsonl#{place}"
        assert reason.startswith(f"expected a line of at most 50 bytes, found {length + 9:,}")
        assert reason.endswith("raise source.max_row_bytes if a worker's memory holds several rows of that size")


def test_a_document_beyond_the_bound_is_one_bad_row(read: Reader):
    found = read(Jsonl, {"a.json": b'{\n"a": 1\n}\n' * 300_000, "b.jsonl": b'{"a":2}'}, max_row_bytes=2**20)
    assert found.column("a") == [2]
    assert "expected a JSON document of 1,048,576 bytes at most" in found.bad["a.json"]
