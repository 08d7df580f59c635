"""Promises of `overnight deploy` and `serve` over drawn job files: each job has its deployments, and no others."""

import tempfile
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prefect.client.orchestration import get_client

from overnight.cli.main import main
from overnight.flows.deploy.apply import deploy
from overnight.flows.deploy.prefect_yaml import PrefectFile
from overnight.tasks.errors import JobError
from tests import jobs

FLOWS = ("batch-inference", "backfill", "freshness")
JOBS = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["a", "b", "a-b", "a_b"]),
        "is_dated": st.booleans(),
        "schedule": st.sampled_from([None, {"cron": "0 2 * * *"}, {"cron": "5 3 * * 1", "deadline": "06:00"}]),
    }
)


def write(folder: Path, drawn: list[dict[str, Any]]) -> list[Path]:
    """A file for each drawn job, in a folder of its own."""
    paths = []
    for number, described in enumerate(drawn):
        place = folder / str(number)
        source = {"kind": "jsonl", "path": f"{place}/in" + "/{partition}" * described["is_dated"]}
        sections = {"name": described["name"], "source": source, "schedule": described["schedule"]}
        paths.append(jobs.write_job(place / "job.yaml", jobs.job(place, **sections)))
    return paths


def wanted(described: dict[str, Any]) -> set[str]:
    """The deployments that a job has by the documentation."""
    schedule = described["schedule"]
    flows = {"batch-inference", *(["backfill"] * described["is_dated"])}
    flows |= {"freshness"} if schedule and "deadline" in schedule else set()
    return {f"{flow}/{described['name']}" for flow in flows}


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(JOBS, min_size=1, max_size=4))
def test_each_job_is_deployed_once_or_the_two_files_of_one_name_are_refused(drawn: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = write(Path(folder), drawn)
        names = [described["name"] for described in drawn]
        if len(set(names)) == len(names):
            expected = set[str]().union(*map(wanted, drawn))
            assert set(PrefectFile(job_paths=paths).deployments) == expected
            return
        with pytest.raises(JobError) as refused:
            PrefectFile(job_paths=paths)
        shown = [name for path, name in zip(paths, names, strict=True) if str(path) in str(refused.value)]
        assert len(shown) == 2
        assert len(set(shown)) == 1


@pytest.mark.parametrize(("command", "is_twice"), [*product(("deploy", "serve"), (True, False))])
def test_one_name_in_two_files_or_one_file_named_twice_deploys_nothing(
    command: str, is_twice: bool, tmp_path: Path
) -> None:
    drawn = {"name": "twin", "is_dated": True, "schedule": None}
    first, second = write(tmp_path, [drawn, drawn])
    result = CliRunner().invoke(main, [command, str(first), str(first if is_twice else second)])
    assert result.exit_code == 2
    assert "twin" in result.output
    assert str(first) in result.output


def test_one_name_twice_in_a_prefect_yaml_is_refused(tmp_path: Path) -> None:
    [path] = write(tmp_path, [{"name": "twin", "is_dated": False, "schedule": None}])
    content = PrefectFile(job_paths=[path]).described
    content["deployments"] *= 2
    (tmp_path / "prefect.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(JobError, match="twin"):
        PrefectFile(tmp_path / "prefect.yaml")


@pytest.mark.slow
def test_a_deployment_that_the_job_no_longer_has_is_removed_and_named(
    prefect_api: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = {"name": "shrinks", "is_dated": True, "schedule": {"cron": "0 2 * * *", "deadline": "06:00"}}
    other = {"name": "stays", "is_dated": True, "schedule": {"cron": "0 2 * * *", "deadline": "06:00"}}
    after = {"name": "shrinks", "is_dated": False, "schedule": None}
    deploy(job_paths=write(tmp_path, [before, other]))
    try:
        changes = {change.name: change.done for change in deploy(job_paths=write(tmp_path, [after]))}
        assert changes["freshness/shrinks"] == changes["backfill/shrinks"] == "removed"
        assert changes["freshness/stays"] == "left alone"
        with get_client(sync_client=True) as client:
            names = {f"{found.name}" for found in client.read_deployments() if found.name in ("shrinks", "stays")}
            assert names == {"shrinks", "stays"}
            assert client.read_deployment_by_name("batch-inference/shrinks").schedules == []
    finally:
        with get_client(sync_client=True) as client:
            for found in client.read_deployments():
                client.delete_deployment(found.id)
            client.delete_work_pool("overnight")
