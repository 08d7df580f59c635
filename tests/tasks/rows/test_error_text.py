"""The message of a row's error."""

import pyarrow as pa
import pytest

from overnight.tasks.rows.error_text import MESSAGE_LIMIT, error_message


def test_messages_are_never_empty_nor_endless_nor_beyond_utf8():
    assert error_message(ValueError()) == "ValueError"
    assert len(error_message(ValueError("x" * 10_000))) == MESSAGE_LIMIT
    with pytest.raises(UnicodeDecodeError) as raised:
        b"caf\xe9 au lait".decode()
    told = error_message(raised.value.with_traceback(None))
    assert told == "expected text in utf-8, found b'\\xe9 au lait' at byte 3: invalid continuation byte"
    pa.array([error_message(ValueError("caf\udce9"))], pa.string())
