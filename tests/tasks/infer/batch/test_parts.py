"""Sealed parts: their bounds, and what is left of one."""

from pathlib import Path

from overnight.tasks.infer.batch.parts import Parts, Request, key_in
from overnight.tasks.infer.batch.records import Clock
from overnight.tasks.infer.batch.settings import BatchSettings
from overnight.tasks.storage.location import Location
from tests.tasks.infer.batch.client import filling, keys

URL = "http://127.0.0.1:9/v1"  # nothing is sent


def test_the_bounds_of_a_part_are_rows_and_tokens(tmp_path: Path) -> None:
    sizes = {}
    for name, bounds in {"rows": {"rows": 7}, "tokens": {"enqueued_tokens": 45}}.items():
        parts = filling(URL, tmp_path / name, Clock(), **bounds).items.values()
        sizes[name] = [part.rows for part in parts]
    assert sizes == {"rows": [7, 7, 7, 7, 2], "tokens": [4] * 7 + [2]}


def test_what_an_interrupted_sealing_wrote_is_no_part_of_the_next_one(tmp_path: Path) -> None:
    assert len(filling(URL, tmp_path, Clock(), rows=3).items) == 10
    (tmp_path / "batches/sealed.json").unlink()
    assert len(filling(URL, tmp_path, Clock()).items) == 3


def test_the_rest_of_a_part_is_sealed_the_same_however_often(tmp_path: Path) -> None:
    parts = filling(URL, tmp_path, Clock()).records.parts
    part = parts.all()[0]
    rest = parts.seal_rest(part, set(keys()[2:4]), 2)
    assert (rest.name, rest.rows, rest.tokens, rest.tries) == ("00000.1", 2, 20.0, 2)
    assert list(map(key_in, parts.requests(rest).splitlines())) == keys()[2:4]
    assert parts.seal_rest(part, set(keys()[2:4]), 2) == rest
    assert parts.seal_rest(rest, {keys()[3]}, 3).name == "00000.2"
    assert [each.name for each in parts.all()] == ["00000", "00001", "00002"]
    part.rest = "00000.1"
    parts.save(part)
    assert [each.name for each in parts.all()] == ["00000", "00000.1", "00001", "00002"]


def test_a_request_that_no_file_may_hold_is_in_no_part(tmp_path: Path) -> None:
    parts = Parts(Location(str(tmp_path)), "generation")
    requests = [Request("a", "x", 1.0), Request("b", "y" * 1_000_001, 1.0), Request("c", "é" * 600_000, 1.0)]
    lines = {request.key: request.body.encode() for request in requests}
    [part] = parts.seal(requests, lambda key, _: lines[key], BatchSettings(megabytes=1))
    assert (part.rows, parts.requests(part)) == (1, b"x")
