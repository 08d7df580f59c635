"""A run that a process took and did not start, because the process died, is started by the next."""

from pathlib import Path

import pytest
import yaml

from overnight.flows.deploy.automations import FOLDER, apply_automations
from tests.chaos.conftest import assert_exact, receipt_of, start_deployed, states_of, wait_for_state, write_job
from tests.chaos.runs import end, set_pace, started_runs
from tests.prefect_api import ask

pytestmark = pytest.mark.chaos
NAME = "run-that-never-began-starts-again"


@pytest.fixture
def impatient(tmp_path: Path, prefect_api: str) -> None:
    """The shipped automation, for this test's deployment only, and after seconds instead of minutes."""
    automation = yaml.safe_load((FOLDER / f"{NAME}.yaml").read_text())
    automation["name"] = f"impatient-{NAME}"
    automation["trigger"]["within"] = 10
    automation["trigger"]["match_related"][1]["prefect.resource.name"] = "taken"
    (tmp_path / "automations").mkdir()
    (tmp_path / "automations/impatient.yaml").write_text(yaml.safe_dump(automation))
    assert apply_automations(tmp_path / "automations") == {f"impatient-{NAME}": "created"}


@pytest.mark.usefixtures("impatient")
def test_a_run_that_was_taken_and_never_began_is_started_again(tmp_path: Path, prefect_api: str) -> None:
    folder = write_job(tmp_path, "taken")
    set_pace(folder, 0)
    with started_runs(folder, prefect_api) as start:
        taker = start("serve", "job.yaml")
        run = start_deployed(prefect_api, "batch-inference/taken")
        wait_for_state(prefect_api, run, "PENDING")
        end(taker)
        lost = ask(prefect_api, f"/flow_runs/{run}")
        assert (lost["state_type"], lost["run_count"]) == ("PENDING", 0)
        wait_for_state(prefect_api, run, "SCHEDULED", seconds=60)
        start("serve", "job.yaml")
        wait_for_state(prefect_api, run, "COMPLETED", "FAILED", "CRASHED", seconds=240)
    assert states_of(prefect_api, run)[-1] == "COMPLETED"
    assert_exact(receipt_of(folder), folder)
