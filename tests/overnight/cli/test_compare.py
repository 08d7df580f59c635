"""`overnight compare` as it is typed: two settings, two jobs, two days, and what is refused."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from overnight.tasks.storage.stores import Store, in_use, use
from tests.flows.compare.test_sides import STEP, csv_job
from tests.overnight.cli.results_on_disk import typed, write_job, write_result

LARGER = "preprocess.0.columns.size=CASE WHEN n > 20 THEN 'large' ELSE 'small' END"


def test_other_settings_are_computed_on_the_same_rows_and_shown_with_flips(tmp_path: Path) -> None:
    csv_job(tmp_path)
    code, out, _ = typed("compare", tmp_path, "--set", LARGER, "--html", str(tmp_path / "page.html"))
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert "They differ" in lines
    assert "10 x large -> small" in lines
    assert "75.0% of 40 rows agree in size (95 % interval: 59.8% to 85.8%)." in lines
    assert "large in A, small in B: 10 rows" in (tmp_path / "page.html").read_text()


def test_json_is_one_document_and_the_seed_and_the_number_of_rows_choose_the_rows(tmp_path: Path) -> None:
    csv_job(tmp_path)
    documents = []
    for seed in ("1", "1", "2"):
        _, out, _ = typed("compare", tmp_path, "--set", LARGER, "--rows", "12", "--seed", seed, "--json")
        documents.append(json.loads(out))
    assert documents[0]["rows"] == 12
    assert documents[0]["columns"] == documents[1]["columns"]
    assert documents[0]["b"]["rows_per_second"] > 0


def test_another_job_computes_the_rows_of_the_first_unless_both_are_published(tmp_path: Path) -> None:
    csv_job(tmp_path)
    other = yaml.safe_load((tmp_path / "job.yaml").read_text()) | {
        "preprocess": [STEP | {"columns": {"size": "'large'"}}]
    }
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other))
    _, out, _ = typed("compare", tmp_path, str(tmp_path / "other.yaml"))
    assert "11 x small -> large" in out


def test_two_jobs_are_read_with_the_settings_of_both(tmp_path: Path) -> None:
    csv_job(tmp_path)
    job = yaml.safe_load((tmp_path / "job.yaml").read_text())
    for name in ("job", "other"):
        content = job | {"storage": {f"s3://{name}": {"profile": name}}}
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
    try:
        typed("compare", tmp_path, str(tmp_path / "other.yaml"))
        assert [in_use().at(f"s3://{name}/x")[1] for name in ("job", "other")] == [
            Store(profile="job"),
            Store(profile="other"),
        ]
    finally:
        use({})


def test_two_published_days_are_compared_by_their_rows_and_their_statistics(tmp_path: Path) -> None:
    write_job(tmp_path)
    ids = ["a#0", "a#1"]
    write_result(tmp_path, "2026-01-01", pa.table({"row_id": ids, "predicted_label": ["cat", "cat"]}))
    write_result(tmp_path, "2026-01-02", pa.table({"row_id": ids, "predicted_label": ["cat", "dog"]}))
    _, out, _ = typed("compare", tmp_path, "--partition", "2026-01-01", "--with", "2026-01-02")
    assert "A is daily 2026-01-01, B is daily 2026-01-02" in out
    assert "1 x cat -> dog" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected exactly one of --set, OTHER.yaml and --with"),
        (("--set", "sink.path=x", "--with", "2026-01-02"), "expected exactly one of"),
        (("--set", "source.path=elsewhere"), "found one of source"),
        (("--set", LARGER, "--rows", "none"), "'none' is not a valid integer"),
        (("--set", LARGER, "--column", "sice"), "did you mean size"),
    ],
)
def test_bad_usage_exits_with_2_and_what_was_expected(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    csv_job(tmp_path)
    code, out, err = typed("compare", tmp_path, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_a_day_that_is_not_published_exits_with_1_and_the_command_that_makes_it(tmp_path: Path) -> None:
    write_job(tmp_path)
    code, _, err = typed("compare", tmp_path, "--partition", "2026-01-01", "--with", "2026-01-02")
    assert code == 1
    assert "overnight run" in err
