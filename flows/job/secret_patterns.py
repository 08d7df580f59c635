"""Patterns of what may stand in the form: the server refuses secrets that are written out before it keeps them.

They say what `masking.py` says, as far as one pattern can, in what Python's and JavaScript's `re` have in common. What
they miss is refused where the job is loaded; the server has kept it by then.
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
