"""Looks for credentials of Google's and Azure's stores before the first request, for some seconds at most.

The libraries of these stores request credentials from a server that exists only in their clouds. On other machines they
wait for it again and again. This file calls the same libraries once per process, with a time limit. It reads no secret.
"""

import logging
import os
import threading
from collections.abc import Callable

from fsspec.config import conf

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import AccessDenied

WAIT_SECONDS = 12.0
GOOGLE, AZURE = ("gs", "gcs"), ("abfs", "abfss", "az")
AZURE_KEYS = ("connection_string", "account_key", "sas_token", "client_secret", "credential", "anon")
GOOGLE_ADVICE = (
    "Set GOOGLE_APPLICATION_CREDENTIALS to the path of a key file, run `gcloud auth application-default login`, which "
    "writes application_default_credentials.json, or run the job on a machine of Google's with a service account. For "
    "a public bucket set anonymous: true."
)
AZURE_ADVICE = (
    "Set AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT_NAME with AZURE_STORAGE_ACCOUNT_KEY or "
    "AZURE_STORAGE_SAS_TOKEN, or AZURE_TENANT_ID, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, or run the job on a machine "
    "of Azure's with an identity. For a public container set anonymous: true."
)

_found: set[str] = set()  # protocols


def require_credentials(protocol: str) -> None:
    """Raise `AccessDenied` if `protocol` is of Google's or Azure's stores, and there are no credentials for it."""
    if protocol in _found:
        return
    if protocol in GOOGLE:
        if not os.environ.get("STORAGE_EMULATOR_HOST") and not _is_configured(GOOGLE, ("token",)):
            _look(protocol, _google, GOOGLE_ADVICE)
    elif protocol in AZURE:
        is_in_environment = any(os.environ.get(f"AZURE_STORAGE_{key.upper()}") for key in AZURE_KEYS)
        if not is_in_environment and not _is_configured(AZURE, AZURE_KEYS):
            require_extra("azure", f"{protocol}://")
            _look(protocol, _azure, AZURE_ADVICE)
    _found.add(protocol)


def _is_configured(protocols: tuple[str, ...], keys: tuple[str, ...]) -> bool:
    """Return True if fsspec's own configuration has a login, for example from FSSPEC_GS_TOKEN."""
    return any(conf.get(protocol, {}).get(key) for protocol in protocols for key in keys)


def _look(protocol: str, log_in: Callable[[], object], advice: str) -> None:
    reasons: list[str] = []

    def look() -> None:
        try:
            log_in()
            reasons.append("")
        except Exception as error:
            reasons.append(f": {(str(error) or type(error).__name__).splitlines()[0]}")

    # A daemon: it may hang, and must not delay the end of the process.
    thread = threading.Thread(target=look, name="credentials", daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    reason = reasons[0] if reasons else f" in {WAIT_SECONDS:g} s"
    if reason:
        raise AccessDenied(f"{protocol}://: expected credentials, found none{reason.rstrip('.')}. {advice}")


def _google() -> object:
    from gcsfs.credentials import GoogleCredentials

    return GoogleCredentials(None, "read_write", "google_default")


def _azure() -> object:
    from azure.identity import DefaultAzureCredential

    logger = logging.getLogger("azure.identity")  # it would list in 15 lines where it looked
    logger.setLevel(logger.level or logging.ERROR)
    return DefaultAzureCredential().get_token("https://storage.azure.com/.default")
