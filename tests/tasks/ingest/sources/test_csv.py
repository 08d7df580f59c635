"""CSV files as nobody wants them."""

import gzip
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from overnight.tasks.errors import InputError
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources.csv import Csv
from overnight.tasks.state.manifest import read_warnings
from overnight.tasks.storage.location import Location
from tests.tasks.ingest.conftest import Read, overwritten
from tests.tasks.manifests import write_manifest

Reader = Callable[..., Read]


def numbers(count: int) -> bytes:
    """A file of `count` rows that does not pack well."""
    draw = random.Random(0)
    return b"a,b\n" + b"".join(b"%d,%d\n" % (i, draw.randrange(10**9)) for i in range(count))


def test_a_number_that_its_type_would_change_is_text_in_a_later_file_and_quarantined_far_behind(read: Reader):
    found = read(Csv, {"a.csv": b"zip,n\n10001,1\n", "b.csv": b"zip,n\n02116,2\n"})
    assert found.column("zip") == ["10001", "02116"]
    many = b"zip,n\n" + b"1,%s\n" % (b"x" * 999) * 4500  # more than types are inferred from
    found = read(Csv, {"a.csv": many + b"02116,y\n2,z\n", "b.csv": many})
    told = "column zip: expected int64, found '02116', which int64 cannot represent as written; see source.types"
    assert found.bad == {"a.csv#4500": told}
    assert found.good["a.csv#4501"]["zip"] == 2


def test_declared_types_hold_also_for_a_column_met_late_and_what_does_not_fit_is_quarantined(read: Reader):
    files = {f"{i}.csv": b"a,b,d\n 007 ,1e5,x\n" for i in range(9)}
    files["x.csv"] = b"a,b,c,d\n8,2,4,007\nnone,1,1,\n"
    found = read(Csv, files, types={"a": "int64", "b": "float32", "c": "int32", "d": "large_string"})
    assert (found.column("a"), found.column("b")) == ([7] * 9 + [8], [1e5] * 9 + [2.0])
    assert (found.good["x.csv#0"]["c"], found.good["x.csv#0"]["d"], list(found.bad)) == (4, "007", ["x.csv#1"])


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_marks_and_line_ends_are_no_data(read: Reader, line_end: bytes, mark: bytes):
    found = read(Csv, {"a.csv": mark + line_end.join([b"a,b", b"1,x", b"2,y", b""])})
    assert (found.column("a"), found.column("b")) == ([1, 2], ["x", "y"])


def test_blank_lines_are_no_rows_and_newlines_in_quotes_no_line_ends(read: Reader):
    found = read(Csv, {"a.csv": b'\n\na,b\n\n1,"x\n\ny"\n\n\n2\n\n3,z\n\n'})
    assert {name: row["b"] for name, row in found.good.items()} == {"a.csv#0": "x\n\ny", "a.csv#2": "z"}
    assert list(found.bad) == ["a.csv#1"]


def test_a_file_is_read_in_its_encoding_also_where_a_character_is_torn_between_two_reads(read: Reader):
    content = "a,b\n" + "".join(f"{number},{'日' * 100}\n" for number in range(9000))
    found = read(Csv, {"a.csv": content.encode("utf-16")}, encoding="utf-16")
    assert found.column("a") == list(range(9000))
    assert set(found.column("b")) == {"日" * 100}
    found = read(Csv, {"a.csv": b"a,b\n1,\xe9\n2,\x81\n3,x\n"}, encoding="cp1252")
    assert (found.column("b"), list(found.bad)) == (["é", "x"], ["a.csv#1"]), "0x81 is no character there"


@pytest.mark.parametrize(
    ("null_values", "texts", "numbers"),
    [
        (None, ["", "", "NA", "x"], [1.5, None, None, None]),
        ([""], ["", None, "NA", "x"], None),
        (["", "NA", "nan"], ["", None, None, "x"], [1.5, None, None, None]),
    ],
)
def test_nulls_are_the_texts_that_the_job_names_unless_they_have_quotes(
    read: Reader, null_values: list[str] | None, texts: list, numbers: list | None
):
    found = read(Csv, {"a.csv": b'n,t\n1.5,""\nnan,\n,NA\nnan,x\n'}, null_values=null_values)
    assert found.column("t") == texts
    assert str(found.column("n")) == str(numbers or [1.5, float("nan"), None, float("nan")])


NUMBERS = numbers(2000)
PACKED = gzip.compress(NUMBERS)
HOSTILE = {
    "empty.csv": (b"", 0, "expected a header line, found none"),
    "utf-16.csv": (NUMBERS.decode().encode("utf-16"), 0, "found the byte order mark of UTF-16"),
    "latin-1.csv": (b"a,\xfc\n1,2\n", 0, "expected UTF-8, found other bytes in the header line"),
    "page.csv": (b"<html>\n<body>404</body>\n</html>\n", 0, "expected the columns a, b, found <html>"),
    "headless.csv": (b"1,2\n3,4\n", 0, "expected the columns a, b, found 1, 2"),
    "headless-and-short.csv": (b"1,2\n", 0, "if the file has no header line, keep it apart"),
    "column-twice.csv": (b"a,a\n1,2\n", 0, "expected each column once in the header line, found several named a"),
    "semicolons.csv": (b"a;b\n1;2\n", 0, "if a semicolon separates the columns, set source.delimiter to ';'"),
    "sum.csv.gz": (overwritten(PACKED, -8, -4), 2000, "expected a whole gzip file: CRC check failed"),
    "no-tabs.tsv": (b"a,b\n1,2\n", 0, "if a comma separates the columns"),
    "open-quote.csv": (b'"a,b\n1,2\n3,4\n', 0, "expected"),
    "size.csv.gz": (PACKED[:-4] + bytes(4), 2000, "expected a whole gzip file: Incorrect length"),
}


NO_ROWS = {
    b"1": "expected 2 fields, found 1: 1",
    b"1,x,2": "expected 2 fields, found 3: 1,x,2",
    b'1,"x': "expected a closing quote, found the end of the file",
    b"one,x": "column a: expected int64, found 'one'",
    b"\x00,x": "column a: expected int64, found '\\x00'",
    b"1,caf\xe9": "column b: expected UTF-8, found 'caf\ufffd'; see source.encoding",
}


@pytest.mark.parametrize(("line", "reason"), NO_ROWS.items(), ids=[str(line) for line in NO_ROWS])
def test_a_line_that_is_no_such_row_is_quarantined_alone_with_the_reason(read: Reader, line: bytes, reason: str):
    found = read(Csv, {"a.csv": b"a,b\n" + b"1,x\n" * 9, "b.csv": b"a,b\n2,y\n" + line})
    assert found.bad == {"b.csv#1": reason}
    assert found.column("a") == [1] * 9 + [2]


def test_bad_rows_are_numbered_right_beyond_the_reader_s_first_block(read: Reader):
    lines = [b"%d,%s" % (i, b"x" * 90) if i % 1000 else b"%d" % i for i in range(100_000)]
    found = read(Csv, {"a.csv": b"a,b\n" + b"\n".join(lines)})
    assert list(found.bad) == [f"a.csv#{n}" for n in range(0, 100_000, 1000)]
    assert all(name == f"a.csv#{row['a']}" for name, row in found.good.items())


@pytest.mark.parametrize(
    "settings", [{"types": {"a": "integer please"}}, {"types": {"a": "duration[s]"}}, {"encoding": "rot13"}]
)
def test_a_type_that_text_cannot_become_and_an_encoding_of_no_text_are_refused_with_the_job(settings: dict):
    with pytest.raises(ValidationError, match=r"expected an Arrow type|latin_1"):
        Csv(path="x", **settings)


def test_a_type_for_a_column_that_is_not_there_names_those_that_are(read: Reader):
    with pytest.raises(InputError, match=r"no column z; the columns are a, b"):
        read(Csv, {"a.csv": b"a,b\n1,2\n"}, types={"z": "int64"})


def test_a_row_longer_than_the_reader_s_block_is_read_whole(read: Reader):
    long = b"x\n" * (5 * 2**20)
    found = read(Csv, {"a.csv": b"a,b\n1,u\n2,v,w\n3,y\n" * 3 + b'4,"' + long + b'"\n5,z\n6\n'})
    assert found.counts == {"a.csv": 14}
    assert len(found.good["a.csv#11"]["b"]) == len(long)
    assert found.good["a.csv#12"]["b"] == "z"
    assert list(found.bad)[-1] == "a.csv#13"


def test_a_gzip_that_breaks_off_keeps_every_whole_row_before_the_break(read: Reader):
    whole = numbers(200_000)
    lines = whole.split(b"\n")
    found = read(Csv, {"a.csv.gz": gzip.compress(whole)[:700_000]})
    assert len(found.bad) == 1
    assert "Compressed file ended" in next(iter(found.bad.values()))
    assert len(found.good) > 80_000
    assert all(b"%d,%d" % (row["a"], row["b"]) == lines[i + 1] for i, row in enumerate(found.good.values()))


def test_the_extension_s_case_does_not_matter(read: Reader):
    found = read(Csv, {"A.CSV.GZ": gzip.compress(b"a,b\n1,2\n"), "B.TSV": b"a\tb\n3\t4\n"})
    assert found.column("b") == [2, 4]


def test_a_column_first_met_late_is_text_so_that_no_two_files_can_disagree_about_it(read: Reader):
    found = read(Csv, {**{f"{i}.csv": b"a,b\n1,2\n" for i in range(9)}, "x.csv": b"a,c\n3,4\n"})
    assert found.good["x.csv#0"] | {"a": 3, "b": None, "c": "4"} == found.good["x.csv#0"]


def test_files_without_a_header_are_given_names_and_one_without_lines_is_a_bad_row(read: Reader):
    found = read(Csv, {"a.csv": b"1,2\n3\n4,5\n", "b.csv": b""}, column_names=["a", "b"])
    assert {name: row["b"] for name, row in found.good.items()} == {"a.csv#0": 2, "a.csv#2": 5}
    assert (set(found.bad), found.bad["b.csv"]) == ({"a.csv#1", "b.csv"}, "expected rows, found none")


def test_columns_without_a_name_are_named_by_their_place(read: Reader):
    found = read(Csv, {"a.csv": b"id,name,,\n1,Ana,,x\n2,Bo,,\n"})
    assert (found.column("column_3"), found.column("column_4")) == (["", ""], ["x", ""])
    found = read(Csv, {"a.csv": b"a,,column_2\n1,2,3\n"})
    assert found.bad == {"a.csv#0": "expected each column once in the header line, found several named column_2"}


def test_a_file_of_a_header_line_alone_that_repeats_a_name_is_a_bad_row(read: Reader):
    found = read(Csv, {"a.csv": b"a,b\n1,2\n", "b.csv": b"a,a\n"})
    assert found.bad == {"b.csv": "expected each column once in the header line, found several named a"}
    assert list(read(Csv, {"a.csv": b"a,a\n", "b.csv": b"a,a\n"}).bad) == ["a.csv", "b.csv"]


def test_a_header_line_in_the_middle_of_a_file_is_no_row(read: Reader):
    found = read(Csv, {"a.csv": b"a,b\n1,x\na,b\n2,y\n"})
    assert found.column("a") == [1, 2]
    assert found.bad == {"a.csv#1": "expected a row, found the names of the columns again: a, b"}
    assert read(Csv, {"a.csv": b"word\nword\n"}).column("word") == ["word"]


def test_a_header_line_that_is_hardly_one_is_a_warning_of_the_manifest(tmp_path: Path):
    (tmp_path / "a.csv").write_bytes(b"id;name;price\n1;Ana;1.50\n")
    source, place = Csv(path=str(tmp_path)), Location(str(tmp_path / "manifest"), "all")
    schema = source.common_schema(source.units(list_inputs(source, "all")))
    write_manifest(place, source.units([]), "", schema)
    [warning] = read_warnings(place)
    assert "a.csv: one column is named 'id;name;price': if a semicolon separates the columns" in warning


def test_many_unreadable_files_do_not_hide_the_types_of_the_next(read: Reader):
    found = read(Csv, {**{f"{i}.csv": b"" for i in range(9)}, "x.csv": b"a,b\n1,2\nx,3,\n4,5\n"})
    assert found.column("a") == [1, 4]
    assert len(found.bad) == 10
