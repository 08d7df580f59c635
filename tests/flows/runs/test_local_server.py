import pytest
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

from overnight.flows.runs.local_server import prefect_server, ui_address


def test_a_person_is_sent_to_the_api_s_host_or_to_the_address_that_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_UI_URL", raising=False)
    assert ui_address("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200"
    monkeypatch.setenv("PREFECT_UI_URL", "http://127.0.0.1:8080/")
    assert ui_address("http://prefect-server:4200/api") == "http://127.0.0.1:8080"


@pytest.mark.parametrize("url", ["http://127.0.0.1:4200/api", "https://prefect.example.org/api"])
def test_a_server_that_is_configured_is_taken_as_it_is(url: str) -> None:
    with temporary_settings({PREFECT_API_URL: url}), prefect_server() as found:
        assert found == url
        assert get_current_settings().api.url == url
