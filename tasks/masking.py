"""URLs without what may be secret in them, for everything that is shown, logged or stored.

User info and the values of the query become `***`; a `${VARIABLE}` stays, because it is not filled in. Messages,
receipts, reasons of quarantine and findings pass through here. Messages and reasons are `printable`, too. The bucket
that Azure writes before an @ stays as well.
"""

import re
from typing import Any

HIDDEN = "***"
BUCKETS = ("abfs", "abfss", "wasb", "wasbs")  # schemes whose URLs have a container where others have user info

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#'\"`<>]*@)?([^\s?#'\"`<>]*)(\?[^\s#'\"`<>]*)?")
_VARIABLE = re.compile(r"\$\{[^}]*\}")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")
_VALUE = re.compile(r"=([^&;]*)")


def masked(text: str) -> str:
    """`text` with what may be secret in its URLs as `***`. A masked text stays as it is."""
    return _URL.sub(_masked_url, text) if "://" in text else text


def printable(text: str) -> str:
    """`text` with control characters in sight, as `\\x1b`: a terminal would obey them. Line ends and tabs stay."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found.group()):02x}", text)


def masked_in(value: Any) -> Any:
    """A JSON value, or what is made of these, with every text in it masked."""
    if isinstance(value, str):
        return masked(value)
    if isinstance(value, dict):
        return {key: masked_in(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(masked_in(inner) for inner in value)
    return value


def _masked_url(found: re.Match[str]) -> str:
    scheme, user, place, query = found.groups(default="")
    if user and scheme.lower() not in BUCKETS:
        user = ":".join(_hidden(part) for part in user.removesuffix("@").split(":")) + "@"
    values = query.rstrip(":.,)")  # of the sentence that the URL stands in
    hidden = _VALUE.sub(lambda value: f"={_hidden(value.group(1))}", values)
    return f"{scheme}://{user}{place}{hidden}{query[len(values) :]}"


def _hidden(part: str) -> str:
    return part if not part or _VARIABLE.fullmatch(part) else HIDDEN
