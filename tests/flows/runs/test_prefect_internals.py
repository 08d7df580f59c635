"""What is used of Prefect's internals: this test breaks when they move, and another version of Prefect is refused."""

import importlib
from datetime import UTC, datetime
from typing import Any

import prefect
import pytest
from prefect import flow
from prefect.client.orchestration import get_client
from prefect.context import SettingsContext

from overnight.flows.runs import prefect_internals
from overnight.tasks.errors import OvernightError


def test_the_server_says_when_a_schedule_fires() -> None:
    found = prefect_internals.cron_dates(
        "0 2 * * *", "Europe/Berlin", 1, datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 3, 30, tzinfo=UTC)
    )
    assert [date.timestamp() for date in found] == [datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()]


def test_settings_travel_as_nothing() -> None:
    current: Any = SettingsContext.get()
    without = prefect_internals.NoSettings(profile=current.profile, settings=current.settings)
    assert (without.serialize(), "settings" in current.serialize()) == ({}, True)


def test_a_flow_run_that_the_server_has_is_run_and_what_it_told_is_sent(prefect_api: str) -> None:
    @flow(persist_result=False)
    def probe() -> int:
        return 7

    with get_client(sync_client=True) as client:
        flow_run = client.create_flow_run(probe)
        assert prefect_internals.run_flow(probe, flow_run=flow_run) == 7
        prefect_internals.send_logs_and_events(5.0)
        assert client.read_flow_run(flow_run.id).state.is_completed()  # type: ignore[union-attr]


def test_another_version_of_prefect_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect, "__version__", "3.10.0")
    with pytest.raises(OvernightError, match=r"expected Prefect 3\.9\.\*.*found 3\.10\.0.*pip install"):
        importlib.reload(prefect_internals)
