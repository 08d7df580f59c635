"""Columns of folders such as `country=DE`: their names and values, and the columns that have precedence."""

import pyarrow as pa
import pytest

from overnight.tasks.ingest.folder_source import (
    dated_names,
    folder_columns,
    pattern_names,
    with_folder_columns,
)
from overnight.tasks.rows import blocks

PATHS = {0: "raw/country=DE/a.csv", 1: "raw/country=FR/uri=u/b.csv"}


@pytest.mark.parametrize(
    ("path", "columns"),
    [
        ("s3://bucket/a=1/b=02/c.csv", {"a": "1", "b": "02"}),
        ("a%20b=x%2Fy%3D1/c.csv", {"a b": "x/y=1"}),
        ("a=__HIVE_DEFAULT_PARTITION__/b=/c.csv", {"a": None, "b": ""}),
        ("a=x=y/c.csv", {"a": "x=y"}),
        ("=x/plain/c=1.csv", {}),
    ],
)
def test_a_folder_is_a_column_and_its_value_is_text_without_percent_signs(
    path: str, columns: dict[str, str | None]
) -> None:
    assert folder_columns(path) == columns


def test_the_setting_path_shows_names_by_wildcards_and_by_the_partition() -> None:
    paths = ["raw/country=*/date={partition}/", "s3://b/kind=[ab]/n=1/hour=h{partition}/*.csv"]
    assert dated_names(paths) == {"date", "hour"}
    assert pattern_names(paths) == ["country", "kind"]


def block(**columns: list[str]) -> pa.Table:
    return pa.table({"__state": [blocks.LIVE] * 3, "__unit": [1, 0, 1], **columns})


def test_each_row_has_the_values_of_its_own_file() -> None:
    made = with_folder_columns(block(), PATHS, set(), None)
    assert made["country"].to_pylist() == ["FR", "DE", "FR"]
    assert made["source_uri"].to_pylist() == ["u", None, "u"], "a name that every row has already"


def test_a_column_of_the_file_stays_and_columns_that_are_not_chosen_are_left_out() -> None:
    own = block(country=["x", "y", "z"])
    assert with_folder_columns(own, PATHS, {"uri"}, None).equals(own)
    assert with_folder_columns(block(), PATHS, set(), ["country"]).column_names[2:] == ["country"]
    assert with_folder_columns(block(), PATHS, {"country"}, None).column_names[2:] == ["source_uri"]
