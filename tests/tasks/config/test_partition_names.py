from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overnight.tasks.config.partition_names import (
    filled,
    is_value,
    partition_condition,
    partition_folder,
    partition_name,
    partition_values,
    time_and_value,
)
from overnight.tasks.state.run import ledger_name

TIMES = {"": "", "2026-11-19": "date", "2026-11-19T05": "date,hour", "2026-W47": "week", "2026-11": "month"}
VALUES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True).filter(is_value)


@given(st.sampled_from(sorted(TIMES)), st.just("") | VALUES)
def test_a_name_has_its_time_and_value_and_fills_its_folders(time: str, value: str) -> None:
    name, columns = partition_name(time, value), ",".join(filter(None, [TIMES[time], "region" if value else ""]))
    assert time_and_value(name) == (time, value)
    if not name:
        return
    values = partition_values(columns, name)
    assert list(values) == columns.split(",")
    template = "/".join(f"{column}={{{column}}}" for column in values)
    assert filled(template, name) == partition_folder(columns, name)
    assert filled("a/{partition}/${region}", name) == f"a/{name}/${{region}}"
    assert ledger_name(columns, name).removeprefix(f"{columns}=") == name


ODD = ["", "a,b", "a/b", "e u", "..", "a..b", ".a", "_a", "-a", "all", "é", "a=b", "a" * 101]


@pytest.mark.parametrize("text", [*ODD, "2026-11-19", "2026-11-19T05", "2026-W47", "2026-11x"])
def test_a_value_that_a_path_a_shell_or_another_name_could_misread_is_none(text: str) -> None:
    assert not is_value(text)


def test_the_values_of_names() -> None:
    assert partition_values("date", "all") == {} == partition_values("date,region", "all")
    assert partition_values("day", "2026-11-19") == {"day": date(2026, 11, 19)}
    assert partition_folder("date,hour,region", "2026-11-19T05,eu") == "date=2026-11-19/hour=05/region=eu"
    assert partition_condition("date,region", "2026-11-19,eu") == "date = date '2026-11-19' AND region = 'eu'"
    for wrong in ("D", "2026-02-30"):
        with pytest.raises(ValueError, match="day"):
            partition_values("date", wrong)
    assert filled("{date}/{region}", "all") == "{date}/{region}"
