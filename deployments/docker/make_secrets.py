"""Make the secrets of docker-compose.yml: `python deployments/docker/make_secrets.py [FOLDER]`, by default `secrets`.

Each secret is a file, which Compose mounts into the containers that need it. Only the owner can enter the folder. The
files are readable by all, because each container has another user. A password that exists stays as it is, and all files
that contain it are written again: to change it, delete its file, and call this again.

It needs only Python's standard library.
"""

import argparse
import json
import secrets
from pathlib import Path

PASSWORDS = ("grafana-password", "postgres-password", "prefect-password", "ray-token", "redis-password")
STORE_KEYS = ("store-key", "store-setup-key")
BUCKET = "overnight"


def make_secrets(folder: Path) -> None:
    """Write all secrets into the folder, and make the folder if it does not exist."""
    folder.mkdir(mode=0o700, exist_ok=True)
    for name in (*PASSWORDS, *STORE_KEYS):
        if not (folder / name).exists():
            _write(folder / name, secrets.token_hex(32))
    known = {name: (folder / name).read_text().strip() for name in (*PASSWORDS, *STORE_KEYS)}
    login = f'"overnight:{known["prefect-password"]}"'
    profile = f'active = "overnight"\n[profiles.overnight]\nPREFECT_API_AUTH_STRING = {login}\n'
    _write(folder / "prefect-client.toml", profile)
    _write(
        folder / "prefect-server.toml",
        f"[api]\nauth_string = {login}\n"
        f"[server.api]\nauth_string = {login}\n"
        f'[server.database]\npassword = "{known["postgres-password"]}"\n'
        f'[redis.messaging]\npassword = "{known["redis-password"]}"\n',
    )
    _write(folder / "redis.conf", f"requirepass {known['redis-password']}\n")
    _write(folder / "redis-exporter.json", json.dumps({"redis://redis:6379": known["redis-password"]}))
    of_bucket = [f"{action}:{BUCKET}" for action in ("Read", "Write", "List", "Tagging")]
    identities = [
        _identity("setup", known["store-setup-key"], [f"Admin:{BUCKET}"]),
        _identity("overnight", known["store-key"], of_bucket),
    ]
    _write(folder / "store-identities.json", json.dumps({"identities": identities}, indent=1))
    _write(folder / "store-credentials", _credentials("overnight", known["store-key"]))
    _write(folder / "store-setup-credentials", _credentials("setup", known["store-setup-key"]))


def _identity(name: str, key: str, actions: list[str]) -> dict[str, object]:
    """Return a user of SeaweedFS, who may do only these actions."""
    return {"name": name, "credentials": [{"accessKey": name, "secretKey": key}], "actions": actions}


def _credentials(name: str, key: str) -> str:
    """Return a user's keys in the form of AWS's shared credentials file."""
    return f"[default]\naws_access_key_id = {name}\naws_secret_access_key = {key}\n"


def _write(path: Path, content: str) -> None:
    path.write_text(content)
    path.chmod(0o644)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("folder", nargs="?", type=Path, default=Path("secrets"))
    make_secrets(options.parse_args().folder)
