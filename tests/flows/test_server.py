import pytest

from flows.server import ui_address


def test_a_person_is_sent_to_the_api_s_host_or_to_the_address_that_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_UI_URL", raising=False)
    assert ui_address("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200"
    monkeypatch.setenv("PREFECT_UI_URL", "http://127.0.0.1:8080/")
    assert ui_address("http://prefect-server:4200/api") == "http://127.0.0.1:8080"
