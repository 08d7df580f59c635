"""Mask secrets in texts and settings, for everything that is shown, logged or stored: they become `***`.

Secrets are user info and values of the query of URLs, and the secret part of a webhook's address; what follows
`Bearer`, `"api_key":` and the like; known forms of keys, such as `hf_...`; and values of this process's variables with
secret names, or in `hide_variable`, as they are, percent-encoded or in JSON. A `${VARIABLE}` stays as it is.
"""

import functools
import json
import os
import re
from collections.abc import Callable, Iterator
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
    r"(?!(old)?pwd$).*(password|passwd|passphrase|pwd|secret|token|credentials?|connection_string|auth_string)"
    r"|(.*_)?(api)?key",
    re.IGNORECASE,
)

_hidden_variables: set[str] = set()


def hide_variable(name: str) -> None:
    """Hide the value of an environment variable in the texts of this process, whatever the variable's name."""
    _hidden_variables.add(name)


def hide_variable_of_job(name: str) -> None:
    """Hide the value of a variable that a job names, unless it is a word, a path or an address, masked by its form."""
    value = os.environ.get(name, "")
    if "://" not in value and (not _PLAIN.fullmatch(value) or _TOKEN.fullmatch(value)):
        hide_variable(name)


def masked(text: str) -> str:
    """Return `text` with what may be a secret as `***`, see the module's docstring. A masked text stays unchanged."""
    values = frozenset(_secret_values())
    if values:
        text = _pattern_of_values(values).sub(HIDDEN, text)
    return masked_forms(text)


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


def _masked_value(match: re.Match[str]) -> str:
    before, value = filter(None, match.groupdict().values())
    if not match["quoted"]:
        return before + _hidden(value)
    return f"{before}{value[0]}{_hidden(value[1:-1])}{value[0]}"


def _secret_values() -> Iterator[str]:
    """Yield the values of this process's variables that are secret, in the forms in which texts have them."""
    for name in os.environ:
        if name in _hidden_variables or _SECRET_VARIABLE.fullmatch(name):
            value = os.environ.get(name, "")
            # Variables such as GOOGLE_APPLICATION_CREDENTIALS name a file.
            if len(value) >= SHORTEST_VALUE and not _FILE.fullmatch(value):
                yield from {value, quote(value, safe=""), quote(value), json.dumps(value)[1:-1], repr(value)[1:-1]}


@functools.lru_cache(8)
def _pattern_of_values(values: frozenset[str]) -> re.Pattern[str]:
    longest_first = sorted(values, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)))


def filled_in(text: str) -> str:
    """Return the path or URL `text` with its `${VARIABLE}`s replaced by their values, and then masked.

    A variable stays if its name is that of a secret, or if its value is more than a path or an address.
    """

    def value_of(match: re.Match[str]) -> str:
        name = match.group()[2:-1]
        value = os.environ.get(name, "")
        if not value or not _PLAIN.fullmatch(value) or _is_secret(name, value):
            return match.group()
        return value

    return masked(_VARIABLE.sub(value_of, text))


def printable(text: str) -> str:
    r"""Return `text` with its control characters written out, such as `\x1b`. Line ends and tabs stay."""
    return _CONTROL.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    number = ord(match.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"


def masked_in(value: Any) -> Any:
    """Return a JSON value with every text in it masked by its form. Values of secret names, such as `api_key`, too.

    Equal settings stay equal, whatever the values of the environment.
    """
    return _with_texts(value, masked_forms)


def without_secrets(value: Any) -> Any:
    """Return a JSON value with `***` for its secrets alone, for a fingerprint.

    In a URL, only a password and the values of secret names count, because other parts can decide a result.
    """
    return _with_texts(value, lambda text: _without_announced(_URL.sub(_url_without_password, text)))


def _with_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a JSON value with its texts changed, and with `***` for the settings of secret names."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_with_texts(item, change) for item in value)
    if not isinstance(value, dict):
        return value
    return {key: HIDDEN if _is_secret(str(key), item) else _with_texts(item, change) for key, item in value.items()}


def secrets_in(key: str, value: Any) -> Iterator[str]:
    """Yield the dotted key of each secret that a setting, a JSON value, has as plain text: `inference.0.api_key`."""
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
    if not isinstance(value, str | int) or isinstance(value, bool) or value == "":
        return False
    return _is_secret_name(name) and not _VARIABLE.search(str(value))


@functools.lru_cache(1000)
def _is_secret_name(name: str) -> bool:
    return bool(_SECRET.fullmatch(_WORD.sub("_", name)))


def _masked_url(match: re.Match[str]) -> str:
    scheme, user, path, query = match.groups(default="")
    if user and scheme.lower() not in BUCKETS:
        user = ":".join(map(_hidden, user.removesuffix("@").split(":"))) + "@"
    values = query.rstrip(":.,)")  # punctuation of the sentence around the URL
    hidden = _VALUE.sub(lambda value: f"={_hidden(value.group(1))}", values)
    return f"{scheme}://{user}{path}{hidden}{query[len(values) :]}"


def _url_without_password(match: re.Match[str]) -> str:
    scheme, user, path, query = match.groups(default="")
    if not user or scheme.lower() in BUCKETS:
        return match.group()
    name, colon, password = user.removesuffix("@").partition(":")
    if _TOKEN.fullmatch(name):  # such as a token of GitHub
        name = HIDDEN
    return f"{scheme}://{name}{colon}{_hidden(password)}@{path}{query}"


def _masked_user(match: re.Match[str]) -> str:
    return f"{match['scheme']}{'/'.join(map(_hidden, match['user'].split('/')))}@"


def _hidden(part: str) -> str:
    return part if not part or _VARIABLE.fullmatch(part) else HIDDEN
