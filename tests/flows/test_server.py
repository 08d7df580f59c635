import os
import ssl

import pytest
from prefect.settings import PREFECT_API_URL, get_current_settings, temporary_settings

from flows.server import prefect_server, ui_address


def test_a_person_is_sent_to_the_api_s_host_or_to_the_address_that_is_configured(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PREFECT_UI_URL", raising=False)
    assert ui_address("http://127.0.0.1:4200/api") == "http://127.0.0.1:4200"
    monkeypatch.setenv("PREFECT_UI_URL", "http://127.0.0.1:8080/")
    assert ui_address("http://prefect-server:4200/api") == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("url", "is_read"),
    [
        ("http://127.0.0.1:4200/api", False),
        ("http://localhost:4200/api", False),
        ("https://127.0.0.1:4200/api", True),
        ("http://prefect.example.org/api", True),  # which may answer with where it is behind TLS
    ],
)
def test_only_clients_that_may_speak_tls_read_the_certificates_of_all(
    monkeypatch: pytest.MonkeyPatch, url: str, is_read: bool
) -> None:
    monkeypatch.setenv("PREFECT_API_SSL_CERT_FILE", "before.pem")
    with temporary_settings({PREFECT_API_URL: url}), prefect_server() as found:
        assert found == url
        file = os.environ["PREFECT_API_SSL_CERT_FILE"]
        if not is_read:
            assert get_current_settings().api.ssl_cert_file == file
            assert len(ssl.create_default_context(cafile=file).get_ca_certs()) == 1
        assert (file == "before.pem") is is_read
    assert os.environ["PREFECT_API_SSL_CERT_FILE"] == "before.pem"
