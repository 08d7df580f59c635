import os
import signal
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

from overnight.flows.runs import local_server
from overnight.flows.runs.local_server import prefect_server, ui_address
from overnight.tasks.errors import OvernightError


def test_a_person_is_sent_to_the_api_s_host_or_to_the_address_that_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_UI_URL", raising=False)
    assert ui_address("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200"
    monkeypatch.setenv("PREFECT_UI_URL", "http://127.0.0.1:8080/")
    assert ui_address("http://prefect-server:4200/api") == "http://127.0.0.1:8080"


@pytest.mark.slow
def test_a_server_that_starts_slowly_is_found_by_the_next_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_server, "START_SECONDS", 0.0)
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults={PREFECT_API_URL}):
        with (
            pytest.raises(OvernightError, match="Run the command again: the server is still starting"),
            prefect_server(),
        ):
            pass
        first = int((tmp_path / "server.pid").read_text())
        try:
            monkeypatch.setattr(local_server, "_start", lambda *_: pytest.fail("a second server was started"))
            monkeypatch.setattr(local_server, "BUSY_SECONDS", 300.0)
            with prefect_server() as url:
                assert url.startswith("http://127.0.0.1:")
        finally:
            os.kill(first, signal.SIGTERM)
            os.waitpid(first, 0)
