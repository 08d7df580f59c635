"""Which hosts the proxy of the environment is for; the suite of endpoints shows it by requests."""

import pytest

from overnight.tasks.infer.endpoint.transport import goes_directly, proxy_of


@pytest.mark.parametrize(
    "host", ["localhost.", "a.localhost", "127.1", "0x7f.1", "[::1]", "::ffff:127.0.0.1", "10.1.2.3"]
)
def test_own_addresses_and_networks_of_no_proxy_use_no_proxy(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "nonsense/8, 10.0.0.0/8")
    monkeypatch.setenv("http_proxy", "http://me:secret@proxy.test")
    assert goes_directly(host)
    assert proxy_of("http", host) == ""
    assert not goes_directly("192.0.2.1")
    assert proxy_of("http", "192.0.2.1") == "http://***:***@proxy.test"
