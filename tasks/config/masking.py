"""Mask secrets in texts and settings, for everything that is shown, logged or stored.

In a text, these become `***`:

- user info, values of the query, and the part of a webhook that is its secret, in URLs; a `${VARIABLE}` stays, because
  it is not filled in, and so does the container that Azure writes before an @;
- what follows `Bearer`, `AccountKey=`, `"api_key":` and the like; known forms of keys, such as `hf_...`;
- the values of this process's environment variables with secret names, and of the ones in `hide_variable`: as they
  are, percent-encoded, or in JSON. Values shorter than `SHORTEST_VALUE` stay, and so do other encodings.

Messages, receipts, reasons of quarantine and findings are masked here. Messages and reasons are also `printable`. If
the name of a setting is that of a secret, such as `api_key`, its value becomes `***`.

A fingerprint is made of `without_secrets`, which changes nothing but secrets.
"""

import functools
import json
import os
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

HIDDEN = "***"
SHORTEST_VALUE = 6  # characters
BUCKETS = ("abfs", "abfss", "wasb", "wasbs")  # schemes whose URLs have a container in the place of user info

# The lengths of a scheme and of a password with odd characters have limits, so that no text takes quadratic time.
_URL = re.compile(
    r"(?<![A-Za-z0-9+.-])([A-Za-z][A-Za-z0-9+.-]{0,40})://"
    r"([^\s/?#'\"`<>]*@|[^\s/?#'\"`<>:@]{0,100}:(?!//|\d{1,5}(?:[/?#\s,;:.'\")]|$))[^\n@]{0,200}@(?=[\w.\[-]+[:/]|[\w.-]+$))?"
    r"([^\s?#'\"`<>]*)(\?[^\s#'\"`<>]*)?"
)
_ORACLE = re.compile(r"(?P<scheme>\boracle(?:\+\w{1,40})?://)(?P<user>[^\s/@:]{1,200}/[^\s/@]{1,200})@", re.IGNORECASE)
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_PLAIN = re.compile(r"[\w./:~+ -]*")  # no user info, no query and no connection string
# Also the marks that show text in another order than it has.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
_VALUE = re.compile(r"=([^&;]*)")
_WORD = re.compile(r"[.-]|(?<=[a-z])(?=[A-Z])")  # the start of a word in a name without underscores
SECRET_WORDS = (
    r"(api|access|account|private|secret|client|signing|encryption)_?key|access_?key_?id|secret_?access_?key|secret"
    r"|password|passwd|passphrase|pwd|credentials?|authorization|connection_?string"
    r"|(auth|access|api|hf|bearer|refresh|session|security|sas)_?token"
)
_SECRET = re.compile(f"token|(.*_)?({SECRET_WORDS})", re.IGNORECASE)
_QUOTED = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_NAMED = rf"(?<![A-Za-z0-9_])(?:token|sig|signature|shared_?access_?key|(?:[A-Za-z]\w{{0,40}}[_-])?(?:{SECRET_WORDS}))"
_ANNOUNCED = re.compile(
    r"(?P<bearer>\bbearer\s+)(?=[^\s'\",;]*[\d+/=_.-]|[^\s'\",;]{16})(?P<key>[^\s'\",;]+)"
    r"|(?P<basic>\bbasic\s+)(?=[A-Za-z+/]*[0-9=])(?P<user>[A-Za-z0-9+/]{8,}={0,2})(?![\w-])"
    rf"|(?P<name>{_NAMED}=|['\"]{_NAMED}['\"]\s*:\s*)(?P<quoted>{_QUOTED})"
    rf"|(?P<setting>{_NAMED}=)(?P<value>[^\s&;,'\")]+)"
    r"|(?P<hook>hooks\.slack\.com/\w+/|discord(?:app)?\.com/api/webhooks/|webhook\.office\.com/|api\.telegram\.org/bot)"
    r"(?P<path>[^\s'\"<>?#]*[^\s'\"<>?#:.,)])",
    re.IGNORECASE,
)
_ANNOUNCERS = ("bearer", "basic", "sig", "token", "key", "secret", "pass", "pwd", "credential", "authorization",
               "connection", "hook", "telegram")  # fmt: skip
_KEY = re.compile(
    r"(?<![A-Za-z0-9])(?:sk-[\w-]{16,}|hf_\w{20,}|gh[pousr]_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}"
    r"|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)"
)

_FILE = re.compile(r"(/[\w.-]+){2,}")
_TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w-]{16,}")
_SECRET_VARIABLE = re.compile(
    r"(?!(old)?pwd$).*(password|passwd|passphrase|pwd|secret|token|credentials?|connection_string|auth_string)|(.*_)?key",
    re.IGNORECASE,
)

_hidden_variables: set[str] = set()


def hide_variable(name: str) -> None:
    """Hide the value of an environment variable in the texts of this process, whatever the variable's name."""
    _hidden_variables.add(name)


def hide_variable_of_job(name: str) -> None:
    """Hide the value of a variable that a job names, unless it is a word, a path or an address, as most are.

    An address is masked by its form, so that a reader still sees its host.
    """
    value = os.environ.get(name, "")
    if "://" not in value and (not _PLAIN.fullmatch(value) or _TOKEN.fullmatch(value)):
        hide_variable(name)


def masked(text: str) -> str:
    """Return `text` with what may be a secret as `***`, see the module's docstring. A masked text stays unchanged."""
    values = _pattern_of_values(frozenset(_secret_values()))
    return masked_forms(values.sub(HIDDEN, text) if values else text)


def masked_forms(text: str) -> str:
    """Return `text` with `***` for what has the form of a secret, whatever the values of the environment."""
    if "://" in text:
        text = _ORACLE.sub(_masked_user, text)
        text = _URL.sub(_masked_url, text)
    return _without_announced(text)


def _without_announced(text: str) -> str:
    small = text.lower()
    if any(word in small for word in _ANNOUNCERS):
        text = _ANNOUNCED.sub(_masked_value, text)
    return _KEY.sub(HIDDEN, text)


def _masked_value(found: re.Match[str]) -> str:
    before, value = (part for part in found.groupdict().values() if part is not None)
    quote_mark = value[0] if found["quoted"] else ""
    return f"{before}{quote_mark}{_hidden(value[1:-1] if quote_mark else value)}{quote_mark}"


def _secret_values() -> Iterator[str]:
    """Yield the values of this process's variables that are secret, in the forms in which texts have them."""
    for name in os.environ:
        if name in _hidden_variables or _SECRET_VARIABLE.fullmatch(name):
            value = os.environ.get(name, "")
            if len(value) >= SHORTEST_VALUE and not _is_file(value):
                yield from {value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1], repr(value)[1:-1]}


def _is_file(value: str) -> bool:
    """Return True for the path of a file: variables such as GOOGLE_APPLICATION_CREDENTIALS name one."""
    return _FILE.fullmatch(value) is not None


@functools.lru_cache(8)
def _pattern_of_values(values: frozenset[str]) -> re.Pattern[str] | None:
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first))) if values else None


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
    return _CONTROL.sub(_written_out, text)


def _written_out(found: re.Match[str]) -> str:
    number = ord(found.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def masked_in(value: Any) -> Any:
    """Return a JSON value with every text in it masked by its form. Values of secret names, such as `api_key`, too.

    Equal settings stay equal, whatever the values of the environment.
    """
    if isinstance(value, str):
        return masked_forms(value)
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(str(key), inner) else masked_in(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked_in(inner) for inner in value)
    return value


def without_secrets(value: Any) -> Any:
    """Return a JSON value with `***` for its secrets alone: settings of secret names, and texts in the form of secrets.

    In a URL, only a password and the values of secret names count, because other parts can decide a result.
    """
    if isinstance(value, str):
        hidden = _URL.sub(_url_without_password, value) if "://" in value else value
        return _without_announced(hidden)
    if isinstance(value, dict):
        return {key: HIDDEN if _is_secret(str(key), inner) else without_secrets(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(inner) for inner in value]
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
    elif _is_secret(key.rsplit(".", 1)[-1], value) or (isinstance(value, str) and masked_forms(value) != value):
        yield key


def _is_secret(name: str, value: Any) -> bool:
    """Return True if the name is secret and the value is written out: not null, and without a `${VARIABLE}`."""
    is_written = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    return is_written and _is_secret_name(name) and not _VARIABLE.search(str(value))


@functools.lru_cache(1000)
def _is_secret_name(name: str) -> bool:
    return bool(_SECRET.fullmatch(_WORD.sub("_", name)))


def _masked_url(found: re.Match[str]) -> str:
    scheme, user, place, query = found.groups(default="")
    if user and scheme.lower() not in BUCKETS:
        user = ":".join(_hidden(part) for part in user.removesuffix("@").split(":")) + "@"
    values = query.rstrip(":.,)")  # punctuation of the sentence around the URL
    hidden = _VALUE.sub(lambda value: f"={_hidden(value.group(1))}", values)
    return f"{scheme}://{user}{place}{hidden}{query[len(values) :]}"


def _url_without_password(found: re.Match[str]) -> str:
    scheme, user, place, query = found.groups(default="")
    name, colon, password = user.removesuffix("@").partition(":")
    if not user or scheme.lower() in BUCKETS:
        return found.group()
    name = HIDDEN if _TOKEN.fullmatch(name) else name  # such as a token of GitHub
    return f"{scheme}://{name}{colon}{_hidden(password)}@{place}{query}"


def _masked_user(found: re.Match[str]) -> str:
    parts = [_hidden(part) for part in found["user"].split("/")]
    return f"{found['scheme']}{'/'.join(parts)}@"


def _hidden(part: str) -> str:
    return part if not part or _VARIABLE.fullmatch(part) else HIDDEN
