import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_KEY,
    PREFECT_HOME,
    PREFECT_SERVER_API_AUTH_STRING,
    temporary_settings,
)

from overnight.flows.runs.server_login import (
    client_login,
    how_to_log_in,
    login_file,
    make_login,
    prefect_variables,
    read_login,
)
from overnight.tasks.errors import OvernightError

SHOW = (
    "from prefect.settings import get_current_settings; own = get_current_settings();"
    "print(own.api.auth_string and own.api.auth_string.get_secret_value(), own.server.ephemeral.enabled)"
)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    own = {PREFECT_API_AUTH_STRING, PREFECT_SERVER_API_AUTH_STRING, PREFECT_API_KEY}
    with temporary_settings({PREFECT_HOME: tmp_path}, restore_defaults=own):
        yield tmp_path


def in_a_new_process(home: Path, **variables: str) -> list[str]:
    """The login and the mode without a server that a program of Prefect has with this PREFECT_HOME."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = {**inherited, "PREFECT_HOME": str(home), **variables}
    command = [sys.executable, "-c", SHOW]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.split()


def test_the_login_is_made_once_and_only_its_owner_may_read_it(home: Path) -> None:
    old = os.umask(0o000)
    try:
        login = make_login(home)
    finally:
        os.umask(old)
    assert (make_login(home), read_login(home), client_login(home)) == (login, login, login)
    assert len(login) > 40
    for file in (login_file(home), home / "profiles.toml"):
        assert file.stat().st_mode & 0o777 == 0o600
    assert str(login_file(home)) in how_to_log_in(home)
    assert login not in how_to_log_in(home)


def test_a_prefect_command_with_the_same_home_logs_in_and_still_works_without_a_server(home: Path) -> None:
    login = make_login(home)
    assert prefect_variables(home) == ""
    assert in_a_new_process(home) == [login, "True"]


def test_a_profile_of_the_user_stays_and_the_command_names_the_file_with_the_login(home: Path) -> None:
    text = '# mine\nactive = "mine"\n[profiles.mine]\nPREFECT_LOGGING_LEVEL = "DEBUG"\n'
    (home / "profiles.toml").write_text(text)
    login = make_login(home)
    assert (home / "profiles.toml").read_text() == text
    name, _, path = prefect_variables(home).strip().partition("=")
    assert in_a_new_process(home, **{name: path}) == [login, "True"]
    assert in_a_new_process(home)[0] == "None"


def test_a_key_of_prefect_cloud_is_not_overruled_by_a_profile(home: Path) -> None:
    with temporary_settings({PREFECT_API_KEY: "pnu_0"}):
        make_login(home)
    assert not (home / "profiles.toml").exists()


@pytest.mark.parametrize("setting", [PREFECT_API_AUTH_STRING, PREFECT_SERVER_API_AUTH_STRING])
def test_a_login_of_the_user_holds_and_no_file_is_made(setting: object, home: Path) -> None:
    with temporary_settings({setting: "me:mine"}):
        assert (make_login(home), client_login(home)) == ("me:mine", "me:mine")
        assert "mine" not in how_to_log_in(home)
        assert prefect_variables(home) == ""
    assert list(home.iterdir()) == []


def test_a_login_that_others_could_have_read_or_written_is_refused(home: Path) -> None:
    make_login(home)
    login_file(home).chmod(0o640)
    with pytest.raises(OvernightError, match="expected a file for its owner alone, found mode 640"):
        client_login(home)
    elsewhere = login_file(home).rename(home / "elsewhere")
    elsewhere.chmod(0o600)
    login_file(home).symlink_to(elsewhere)
    with pytest.raises(OvernightError, match=r"overnight-login\.toml"):
        make_login(home)


def test_a_file_without_a_login_is_named(home: Path) -> None:
    login_file(home).touch(0o600)
    with pytest.raises(OvernightError, match="expected the profile with PREFECT_API_AUTH_STRING, found none"):
        make_login(home)
