"""The files of a run can be read by people."""

import json
from pathlib import Path

from overnight.tasks.state.run import read_json, write_json
from overnight.tasks.storage.location import Location


def test_a_list_of_numbers_takes_one_line_and_every_value_stays(tmp_path: Path) -> None:
    record = {
        "samples": {"cpus_busy": [0.5, None, -1.5e-07], "rows": list(range(240))},
        "files": ["a.parquet", "[\\n1, 2]", "[\n 1,\n 2]"],
        "empty": [],
    }
    location = Location(str(tmp_path / "receipt.json"))
    write_json(location, record)
    text = (tmp_path / "receipt.json").read_text()
    assert json.loads(text) == record
    assert read_json(location) == record
    assert '"cpus_busy": [ 0.5, null, -1.5e-07 ],' in text
    assert len(text.splitlines()) == 12
