"""What the first line of a CSV file tells: names, another delimiter, or that it is a row."""

import pyarrow as pa
import pytest

from overnight.tasks.ingest.formats.csv_header import alike, doubts


def file(*lines: str, delimiter: str = ",") -> pa.Table:
    names, *rows = (line.split(delimiter) for line in lines)
    return pa.table({name: [row[place] for row in rows] for place, name in enumerate(names)})


DOUBTS: dict[str, tuple[pa.Table, list[str]]] = {
    "semicolons": (
        file("id;name;price", "1;Ana;1.50"),
        ["a: one column is named 'id;name;price': if a semicolon separates the columns, set source.delimiter to ';'."],
    ),
    "tabs": (
        file("id\tname", "1\tAna"),
        ["a: one column is named 'id\\tname': if a tab separates the columns, set source.delimiter to '\\t'."],
    ),
    "a row": (
        file("1,Ana", "2,Bo"),
        ["a: the header line looks like a row: 1, Ana. If the files have no header line, set source.column_names."],
    ),
    "a row with a fraction": (
        file("1.5,Ana", "2,Bo"),
        ["a: the header line looks like a row: 1.5, Ana. If the files have no header line, set source.column_names."],
    ),
    "years": (file("country,2019,2020", "NL,1,2"), []),
    "days": (file("country,2024-01-31,2024-02-29", "NL,1,2"), []),
    "a delimiter in a value": (file("id,name", "1,a;b"), []),
}


@pytest.mark.parametrize(("text", "told"), DOUBTS.values(), ids=DOUBTS)
def test_a_header_line_that_is_hardly_one_is_doubted(text: pa.Table, told: list[str]) -> None:
    assert list(doubts("a", text)) == told


def test_the_columns_are_those_of_the_most_files_that_share_a_name_and_of_the_first_of_equals() -> None:
    one, other, both = file("a,b", "1,2"), file("c", "3"), file("b,c", "4,5")
    files = [("0", other), ("1", one), ("2", one)]
    assert [path for path, _ in alike(files)] == ["1", "2"]
    assert [path for path, _ in alike([*files, ("3", both)])] == ["0", "1", "2", "3"]
    assert [path for path, _ in alike(files[:2])] == ["0"]
    assert alike([]) == []
