"""Mask secrets in URLs and settings, for everything that is shown, logged or stored.

User info and the values of the query become `***`. A `${VARIABLE}` stays, because it is not filled in, and so does the
container that Azure writes before an @. Messages, receipts, reasons of quarantine and findings are masked here.
Messages and reasons are also `printable`. If the name of a setting is that of a secret, such as `api_key`, its value
becomes `***`.
"""

import os
import re
from collections.abc import Iterator
from typing import Any

HIDDEN = "***"
BUCKETS = ("abfs", "abfss", "wasb", "wasbs")  # schemes whose URLs have a container in the place of user info

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#'\"`<>]*@)?([^\s?#'\"`<>]*)(\?[^\s#'\"`<>]*)?")
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_PLAIN = re.compile(r"[\w./:~+ -]*")  # no user info, no query and no connection string
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_VALUE = re.compile(r"=([^&;]*)")
_WORD = re.compile(r"[.-]|(?<=[a-z])(?=[A-Z])")  # the start of a word in a name without underscores
SECRET_WORDS = (
    r"(api|access|account|private|secret|client|signing|encryption)_?key|access_?key_?id|secret_?access_?key|secret"
    r"|password|passwd|passphrase|pwd|credentials?|authorization|connection_?string"
    r"|(auth|access|api|hf|bearer|refresh|session|security|sas)_?token"
)
_SECRET = re.compile(f"token|(.*_)?({SECRET_WORDS})", re.IGNORECASE)


def masked(text: str) -> str:
    """Return `text` with the user info and the query values of its URLs as `***`, because they may be secrets.

    A masked text stays unchanged.
    """
    return _URL.sub(_masked_url, text) if "://" in text else text


def filled_in(text: str) -> str:
    """Return the path or URL `text` with its `${VARIABLE}`s replaced by their values, and then masked.

    So a reader can open the place. A variable stays if its name is that of a secret, or if its value is more than a
    path or an address.
    """

    def value(found: re.Match[str]) -> str:
        name = found.group()[2:-1]
        known = os.environ.get(name, "")
        return known if known and _PLAIN.fullmatch(known) and not _is_secret(name, known) else found.group()

    return masked(_VARIABLE.sub(value, text))


def printable(text: str) -> str:
    r"""Return `text` with its control characters written out, such as `\x1b`. Line ends and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def masked_in(value: Any) -> Any:
    """Return a JSON value with every text in it masked. Values of secret names, such as `api_key`, become `***`."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(str(key), inner) else masked_in(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked_in(inner) for inner in value)
    return value


def secrets_in(key: str, value: Any) -> Iterator[str]:
    """Yield the dotted key of each secret that a setting contains as plain text, such as `inference.0.api_key`.

    `key` is the dotted key of the setting, and `value` its JSON value.
    """
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from secrets_in(f"{key}.{name}", inner)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from secrets_in(f"{key}.{number}", inner)
    elif _is_secret(key.rsplit(".", 1)[-1], value) or (isinstance(value, str) and masked(value) != value):
        yield key


def _is_secret(name: str, value: Any) -> bool:
    """Return True if the name is secret and the value is written out: not null, and without a `${VARIABLE}`."""
    is_written = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return is_written and bool(_SECRET.fullmatch(_WORD.sub("_", name))) and not _VARIABLE.search(str(value))


def _masked_url(found: re.Match[str]) -> str:
    scheme, user, place, query = found.groups(default="")
    if user and scheme.lower() not in BUCKETS:
        user = ":".join(_hidden(part) for part in user.removesuffix("@").split(":")) + "@"
    values = query.rstrip(":.,)")  # punctuation of the sentence around the URL
    hidden = _VALUE.sub(lambda value: f"={_hidden(value.group(1))}", values)
    return f"{scheme}://{user}{place}{hidden}{query[len(values) :]}"


def _hidden(part: str) -> str:
    return part if not part or _VARIABLE.fullmatch(part) else HIDDEN
