"""Every key of a job file has a name, a description, a type, a default, and an example that reads as YAML."""

import pytest
import yaml

from overnight.cli.reference.job_keys import Key, job_keys, kind_example
from overnight.flows.job.model import Job

KEYS = {key.name: key for key in job_keys()}


def test_every_key_has_a_description_and_a_type() -> None:
    assert [key.name for key in KEYS.values() if not key.words] == []
    assert [name for name, key in KEYS.items() if "- type: anything" in key.page() and not key.is_required] == []


def test_every_key_of_the_top_has_a_name_or_is_a_section() -> None:
    sections = {name.partition(".")[0] for name in KEYS}
    assert sections == Job.model_fields.keys()


@pytest.mark.parametrize(
    ("name", "example"),
    [
        ("schedule.cron", {"schedule": {"cron": "0 2 * * *"}}),
        ("checks.min_rows", {"checks": {"min_rows": 1}}),
        ("source.images.label_from", {"source": {"kind": "images", "label_from": "parent"}}),
        ("source.csv.wait_for.file", {"source": {"kind": "csv", "wait_for": {"file": "_SUCCESS"}}}),
        ("preprocess.resize_image.size", {"preprocess": [{"kind": "resize_image", "size": 336}]}),
    ],
)
def test_the_example_of_a_key_shows_where_it_is_in_a_job(name: str, example: dict[str, object]) -> None:
    assert yaml.safe_load(KEYS[name].page().split("```yaml")[1].split("```")[0]) == example


def test_a_key_that_takes_a_mapping_lists_the_keys_of_the_mapping() -> None:
    page = KEYS["source.images.wait_for"].page()
    assert "- type: mapping\n" in page
    assert "| `quiet_minutes` |" in page


def test_a_key_without_a_value_anywhere_has_no_example() -> None:
    key = Key("state_of_mind", {"type": "string", "description": "A text."}, True, {})
    assert key.page() == "# state_of_mind\n\nA text.\n\n- type: text\n- default: none, the key is required"


def test_a_kind_has_the_example_of_a_job_that_ships_if_one_runs_it() -> None:
    assert yaml.safe_load(kind_example("inference", "image_embedding"))["inference"][0]["kind"] == "image_embedding"
    assert kind_example("sink", "iceberg") == ""
