"""Lists of URIs of a web server, of S3 and of the disk, some of which are no good."""

import contextlib
import gzip
import http.server
import io
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from overnight.tasks.errors import InputError, ServiceUnavailable
from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources import uris
from overnight.tasks.ingest.sources.text import Text
from overnight.tasks.ingest.sources.uris import Uris
from overnight.tasks.state.manifest import digest
from overnight.tasks.storage import skipped_files
from tests.tasks.ingest.conftest import Read, read_all

LIES = {
    "longer": ("Content-Length", "1000"),
    "negative": ("Content-Length", "-5"),
    "no-number": ("Content-Length", "many"),
    "packed": ("Content-Encoding", "gzip"),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uris, "RETRIES", replace(uris.RETRIES, first_wait_seconds=0.01))


@pytest.fixture
def web() -> Iterator[tuple[str, Counter]]:
    """A server's address, and how often each path was asked for. A path says what is answered: a status, or itself."""
    asked: Counter = Counter()
    over = threading.Event()

    class Answers(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked[self.path] += 1
            name = self.path.strip("/")
            is_busy = name == "busy" and asked[self.path] < 3
            self.send_response(int(name) if name.isdecimal() else 503 if is_busy else 200)
            if name in ("trickle", "stalled-chunk"):
                self.send_header("Transfer-Encoding", "chunked")
            elif name != "unmeasured":
                self.send_header(*LIES.get(name, ("Content-Length", str(len(name)))))
            self.end_headers()
            if name in ("trickle", "stalled-chunk"):
                self._send_without_end(name)
            else:
                self.wfile.write(name.encode())

        def _send_without_end(self, name: str) -> None:
            with contextlib.suppress(OSError):  # the client has left
                while not over.wait(0.05):
                    self.wfile.write(b"1\r\nx\r\n" if name == "trickle" else b"")
                    if name == "stalled-chunk":
                        self.wfile.write(b"ffff\r\nfew")
                        over.wait(60)

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    over.set()
    server.shutdown()
    server.server_close()


def read(source: Uris) -> Read:
    return read_all(source, source.units(list_inputs(source, "all")))


def read_list(folder: Path, *lines: str, content: str = "bytes", **settings: Any) -> Read:
    """The rows of a list of these lines. Beside it lies the file `a`, whose content is x."""
    (folder / "a").write_bytes(b"x")
    (folder / "list.txt").write_text("".join(f"{line}\n" for line in lines))
    return read(Uris(path=str(folder / "list.txt"), content=content, **settings))


def test_uris_of_all_kinds_are_rows_in_the_order_of_their_list(tmp_path: Path, web: Any, s3: Any, bucket: str) -> None:
    s3.put_object(Bucket=bucket, Key="deep/a b#1.png", Body=b"from s3")
    names = [f"{web[0]}/from-the-web", f"s3://{bucket}/deep/a b#1.png", "a", f"file://{tmp_path}/a"]
    found = read_list(tmp_path, *names[:2], "", *names[2:], f"{web[0]}/unmeasured", content="image")
    assert list(found.good) == [f"list.txt#{n}" for n in range(5)]
    assert found.column("image") == [b"from-the-web", b"from s3", b"x", b"x", b"unmeasured"]
    assert found.column("uri") == [*names[:2], str(tmp_path / "a"), names[3], f"{web[0]}/unmeasured"]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "csv.gz", "jsonl.gz"])
def test_a_list_may_be_any_table_and_its_other_columns_are_kept(tmp_path: Path, kind: str) -> None:
    rows = [{"url": str(tmp_path / f"{n}.bin"), "label": f"l{n}", "n": n, "other": 1} for n in range(5)]
    for n in range(5):
        (tmp_path / f"{n}.bin").write_bytes(b"%d" % n)
    lines = {
        "csv": "url,label,n,other\n" + "".join(f"{r['url']},{r['label']},{r['n']},1\n" for r in rows),
        "jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    buffer = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), buffer)
    content = buffer.getvalue() if kind == "parquet" else lines[kind.removesuffix(".gz")].encode()
    (tmp_path / f"list.{kind}").write_bytes(gzip.compress(content) if kind.endswith(".gz") else content)
    found = read(Uris(path=str(tmp_path), content="bytes", uri_column="url", keep=["label", "n"]))
    assert {name: (row["bytes"], row["label"], row["n"]) for name, row in found.good.items()} == {
        f"list.{kind}#{n}": (b"%d" % n, f"l{n}", n) for n in range(5)
    }
    with pytest.raises(InputError, match="expected a column uri, found url, label, n, other"):
        list_inputs(Uris(path=str(tmp_path), content="bytes"), "all")


def test_a_column_named_uri_is_the_one_that_is_taken_and_a_key_of_several_kinds_of_values_is_text(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.bin").write_bytes(b"x")
    lines = [{"row_id": 7, "uri": "a.bin", "n": n} for n in (1, 2, "many", None)]
    (tmp_path / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = read(Uris(path=str(tmp_path), content="bytes", keep=["n"]))
    assert (found.column("bytes"), found.column("n")) == ([b"x"] * 4, ["1", "2", "many", None])


@pytest.mark.usefixtures("s3")
def test_what_cannot_be_fetched_is_quarantined_with_the_reason(tmp_path: Path, web: Any) -> None:
    address, asked = web
    (tmp_path / "folder").mkdir()
    (tmp_path / "latin.txt").write_bytes("grüße".encode("latin-1"))
    lost = {
        f"{address}/404": "found no file",
        f"{address}/403": "403",
        f"{address}/410": "410",
        f"{address}/500": "500",
        "http://127.0.0.1:9/refused": "cannot be fetched",
        "nothing.txt": "found no file",
        "folder": "expected a file, found a folder",
        "latin.txt": "expected text in utf-8",
        "s3://no-such-bucket-anywhere/a": "",
        "http://[no address": "cannot be fetched",
        "gopher://host/a": "expected a URI of a known storage, found gopher://",
        "ftp://127.0.0.1:9/a": "",
        "webhdfs://127.0.0.1:9/a": "",
        "zip://a": "",
        "http://127.0.0.1:99999/a": "",
        "/a\0b": "",
    }
    found = read_list(tmp_path, f"{address}/good", *lost, f"{address}/busy", content="text")
    assert found.column("text") == ["good", "busy"]
    assert list(found.bad) == [f"list.txt#{n}" for n in range(1, len(lost) + 1)]
    for told, (uri, reason) in zip(found.bad.values(), lost.items(), strict=True):
        assert reason in told, uri
    assert asked["/404"] == asked["/403"] == asked["/410"] == 1
    assert asked["/500"] == uris.RETRIES.max_tries


def test_what_a_list_names_and_is_no_file_is_quarantined_and_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    found = read_list(tmp_path, "fifo", "/dev/zero", "file:///dev/zero", ".", "a", str(tmp_path))
    assert found.column("bytes") == [b"x"]
    reasons = ["FIFO", "device", "device", "folder", "folder"]
    assert list(found.bad.values()) == [f"expected a file, found a {reason}" for reason in reasons]


def test_where_nothing_can_be_reached_the_run_fails_and_quarantines_nothing(tmp_path: Path) -> None:
    with pytest.raises(ServiceUnavailable, match=r"cannot read http://127\.0\.0\.1:9/a and 1 more"):
        read_list(tmp_path, "http://127.0.0.1:9/a", "http://127.0.0.1:9/b")


def test_a_file_of_a_web_server_that_tells_no_length_is_no_input(web: Any) -> None:
    with skipped_files.counting() as passed, pytest.raises(InputError, match="whose length the server does not report"):
        list_inputs(Text(path=f"{web[0]}/unmeasured"), "all")
    assert passed.found == {"file whose length the server does not report": {"files": 1, "names": ["unmeasured"]}}


def test_other_uris_are_other_inputs(tmp_path: Path) -> None:
    def inputs(lines: str) -> str:
        (tmp_path / "list.txt").write_text(lines)
        return digest(list_inputs(Uris(path=str(tmp_path), content="bytes"), "all"))

    assert inputs("a.bin\nb.bin\n") == inputs("a.bin\nb.bin\n") != inputs("a.bin\nc.bin\n")


def test_a_list_that_is_no_text_fails_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"list\.txt: cannot read the list"):
        list_inputs(Uris(path=str(tmp_path), content="bytes"), "all")


@pytest.mark.parametrize("place", [0, 2], ids=["first", "behind"])
@pytest.mark.parametrize("name", LIES)
def test_an_answer_whose_header_lies_costs_its_row_alone(tmp_path: Path, web: Any, name: str, place: int) -> None:
    lines = ["a"] * 3
    lines[place] = f"{web[0]}/{name}"
    found = read_list(tmp_path, *lines)
    assert found.column("bytes") == [b"x", b"x"]
    assert list(found.bad) == [f"list.txt#{place}"]
    assert found.bad[f"list.txt#{place}"].startswith("cannot be fetched: ")


def test_an_answer_that_never_ends_costs_its_row_and_no_other_and_is_fetched_once(tmp_path: Path, web: Any) -> None:
    address, asked = web
    started = time.monotonic()
    found = read_list(
        tmp_path, *(f"{address}/{name}" for name in ("trickle", "good", "stalled-chunk")), timeout_seconds=1.5
    )
    assert time.monotonic() - started < 20
    assert found.column("bytes") == [b"good"]
    assert set(found.bad) == {"list.txt#0", "list.txt#2"}
    assert all("expected the whole file within 1.5 s" in reason for reason in found.bad.values())
    assert asked == {"/trickle": 1, "/good": 1, "/stalled-chunk": 1}


def test_the_content_has_to_be_said_and_the_time_for_a_file_changes_no_result() -> None:
    with pytest.raises(ValidationError, match="'image', 'audio', 'video', 'pdf', 'text' or 'bytes'"):
        Uris(path="x", content="picture")
    some, more = (Uris(path="/in", content="bytes", timeout_seconds=seconds) for seconds in (1, 120))
    assert some.content_settings() == more.content_settings()
