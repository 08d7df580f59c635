"""The options of libraries on Rust's object_store, with a real S3 server."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from overnight.tasks.storage.object_store import delta_options

TABLE = "s3://credentials/t"
KEYS = ("aws_access_key_id", "aws_secret_access_key")


def test_a_delta_table_is_read_with_the_keys_of_a_credentials_file(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deltalake = pytest.importorskip("deltalake")
    s3.create_bucket(Bucket="credentials")
    assert not any(key in delta_options(TABLE) for key in KEYS)
    (tmp_path / "keys").write_text("[default]\naws_access_key_id = test\naws_secret_access_key = of-the-file\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "keys"))
    for key in KEYS:
        monkeypatch.delenv(key.upper())
    assert [delta_options(TABLE)[key] for key in KEYS] == ["test", "of-the-file"]
    assert not any(key in delta_options(TABLE, anonymous=True) for key in KEYS)
    deltalake.write_deltalake(TABLE, pa.table({"x": [1]}), storage_options=delta_options(TABLE))
    assert deltalake.DeltaTable(TABLE, storage_options=delta_options(TABLE)).version() == 0


def test_a_machine_without_a_credentials_file_gives_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    assert not any(key in delta_options(TABLE) for key in KEYS)
