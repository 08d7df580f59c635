"""The examples for other schedulers on the page about Python. Airflow is not installed: it needs another fastapi."""

import re
from pathlib import Path
from typing import Any

import pytest

import overnight

PAGE = Path(__file__).resolve().parents[3] / "docs/how-to/from-python.md"


def example_of(heading: str) -> str:
    """The Python code below a heading of the page."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {heading}\n")[1]
    found = re.search(r"```python\n(.*?)```", section, re.DOTALL)
    assert found
    return found[1]


def job_of(folder: Path) -> overnight.Job:
    """A job without a model: what the scheduler calls is of interest here."""
    day = folder / "in/2026-11-19"
    day.mkdir(parents=True)
    (day / "a.csv").write_text("n\n1\n2\n")
    source = overnight.sources.Csv(path=f"{folder}/in/{{partition}}/")
    return overnight.Job(name="photos", source=source, sink=overnight.sinks.Parquet(path=str(folder / "out")))


@pytest.mark.parametrize("heading", ["In a Prefect flow", "In Airflow", "In Dagster"])
def test_the_examples_are_python(heading: str) -> None:
    compile(example_of(heading), heading, "exec")


@pytest.mark.slow
def test_an_asset_of_dagster_publishes_its_partition(
    ray_session: None, prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dagster  # which takes seconds

    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos.yaml").write_text(job_of(tmp_path).to_yaml())
    names: dict[str, Any] = {}
    exec(example_of("In Dagster"), names)
    done = dagster.materialize([names["photos"]], partition_key="2026-11-19")
    assert done.success
    [made] = done.asset_materializations_for_node("photos")
    assert made.metadata["rows_out"].value == 2
    assert Path(made.metadata["receipt"].value).exists()
