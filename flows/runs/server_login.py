"""The login of the local Prefect server, which other users of the machine could otherwise use to run code.

It is a random text in `PREFECT_HOME/overnight-login.toml`, a file for its owner alone, which Overnight makes once. The
file is one of Prefect's profiles: it logs a `prefect` command in, by PREFECT_PROFILES_PATH. If PREFECT_HOME has no
profiles.toml, Overnight writes the same profile there, and needs no such variable. A user's own PREFECT_API_AUTH_STRING
and PREFECT_SERVER_API_AUTH_STRING come first.
"""

import contextlib
import os
import secrets
import stat
import tempfile
import tomllib
from pathlib import Path

from prefect.settings import get_current_settings
from pydantic import SecretStr

from overnight.tasks.errors import OvernightError

KEY = "PREFECT_API_AUTH_STRING"
PROFILE = """\
# The login of the local Prefect server. In its UI, enter the text between the quotation marks of {key}.
active = "overnight"

[profiles.overnight]
PREFECT_SERVER_EPHEMERAL_ENABLED = "true" # as in Prefect's own default profile
{key} = "overnight:{secret}"
"""


def login_file(home: Path) -> Path:
    return home / "overnight-login.toml"


def user_login() -> str | None:
    """Return the login in the user's own settings of Prefect. The server's setting comes first."""
    settings = get_current_settings()
    return _text(settings.server.api.auth_string) or _text(settings.api.auth_string)


def client_login(home: Path) -> str | None:
    return _text(get_current_settings().api.auth_string) or user_login() or read_login(home)


def read_login(home: Path) -> str | None:
    """Return the login in the file, or None without a file."""
    file = login_file(home)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise OvernightError(f"{file}: expected the login of the Prefect server, found: {error}. Remove it.") from None
    with os.fdopen(descriptor, "rb") as profile:
        status = os.fstat(descriptor)
        if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise OvernightError(
                f"{file}: expected a file for its owner alone, found mode {stat.S_IMODE(status.st_mode):o} of user "
                f"{status.st_uid}. Others may know the login: call `prefect server stop`, remove this file, and remove "
                "the login from profiles.toml beside it."
            )
        try:
            return str(tomllib.load(profile)["profiles"]["overnight"][KEY])
        except (ValueError, KeyError, TypeError):
            raise OvernightError(f"{file}: expected the profile with {KEY}, found none. Remove the file.") from None


def make_login(home: Path) -> str:
    """Return the login for a server that starts now, which is new if there is none. The caller holds a lock."""
    if login := user_login() or read_login(home):
        return login
    profile = PROFILE.format(key=KEY, secret=secrets.token_urlsafe(32))
    write_for_owner(login_file(home), profile)
    settings = get_current_settings()
    profiles = home / "profiles.toml"
    # Prefect prefers this login to a key of Prefect Cloud, so a user with such a key gets no profile.
    if settings.profiles_path == profiles and not profiles.exists() and not settings.api.key:
        write_for_owner(profiles, profile)
    return read_login(home) or ""


def write_for_owner(file: Path, text: str) -> None:
    """Write a file in one step that only its owner may read."""
    descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # of mode 0600
    with os.fdopen(descriptor, "w") as new:
        new.write(text)
    Path(name).replace(file)


def how_to_log_in(home: Path) -> str:
    """Return words for a terminal that show where the user finds the login, without the login itself."""
    login = client_login(home)
    with contextlib.suppress(OvernightError):
        if login and login == read_login(home):
            return f"log in with the text of {KEY} in {login_file(home)}"
    return f"log in with the text of your {KEY}" if login else ""


def prefect_variables(home: Path) -> str:
    """Return the variables that a `prefect` command needs for the login, each with a blank behind it."""
    login, profiles = read_login(home), home / "profiles.toml"
    has_login = profiles.is_file() and login is not None and login in profiles.read_text(errors="replace")
    if not login or has_login or login != client_login(home):
        return ""
    return f"PREFECT_PROFILES_PATH={login_file(home)} "


def _text(secret: SecretStr | None) -> str | None:
    return secret.get_secret_value() if secret else None
