"""What is used of Prefect's internals: this test breaks when they move, and another version of Prefect is refused."""

import gc
import importlib
import weakref
from datetime import UTC, datetime
from typing import Any

import prefect
import pytest
from prefect import flow
from prefect.context import SettingsContext
from prefect.logging.handlers import APILogWorker

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


def test_the_parameters_of_a_form_can_be_changed() -> None:
    deployment: Any = flow(lambda day: None, name="f").to_deployment("d")
    prefect_internals.change_form(deployment, lambda properties: {"day": {**properties["day"], "title": "Day"}})
    assert deployment._parameter_openapi_schema.properties["day"]["title"] == "Day"


def test_another_version_of_prefect_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefect, "__version__", "3.10.0")
    with pytest.raises(OvernightError, match=r"found 3\.10\.0"):
        importlib.reload(prefect_internals)


def test_a_sender_that_has_sent_is_collected_although_prefect_keeps_it_for_the_end(prefect_api: str) -> None:
    sender = weakref.ref(APILogWorker.instance())
    prefect_internals.send_logs_and_events(10)
    gc.collect()
    assert sender() is None
