"""Patterns of the values that the form accepts: the server refuses a secret in plain text before it stores it.

They follow the rules of `masking.py` as far as one pattern can, in the syntax that Python's and JavaScript's regular
expressions share. If the patterns miss a secret, the server stores it, and the loading of the job refuses it.
"""

import re

from overnight.tasks.config.masking import SECRET_WORDS

_VARIABLE = r"\$\{[^}]*\}"


def _in_any_case(pattern: str) -> str:
    return re.sub(r"[a-z]", lambda letter: f"[{letter.group()}{letter.group().upper()}]", pattern)


_NAME = rf"(?:{_in_any_case('token')}|(?:[\w-]*[_-])?(?:{_in_any_case(SECRET_WORDS).replace('_?', '[_-]?')}))"
_SETTING = rf"(?:[^=]*\.)?{_NAME}=(?!\s*(?:null|~|true|false)?\s*$)(?!.*{_VARIABLE})"
_MAPPING = rf"[^=]*=\s*\[?\s*\{{(?:.*[{{,])?\s*[\x22']?{_NAME}[\x22']?\s*:\s*"
_INSIDE = rf"{_MAPPING}(?!(?:null|~|true|false)\b)(?![^,}}]*{_VARIABLE})[^\s,}}]"
_USER = rf"(?!(?:abfss?|wasbs?)://)\b[a-zA-Z][\w+.-]*://(?!(?:{_VARIABLE}|:)*@)[^\s/?#'\x22<>]+@"
_QUERY = rf"://[^\s?#'\x22<>]*\?[^\s#'\x22<>]*=(?!{_VARIABLE}(?:[&;\s'\x22]|$))(?![&;\s'\x22]|$)"

NO_SECRET_URL = rf"^(?![\s\S]*(?:{_USER}|{_QUERY}))"
NO_SECRET_SETTING = rf"{NO_SECRET_URL}(?!{_SETTING})(?!{_INSIDE})[^=\s]+="
