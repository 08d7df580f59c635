"""NumPy files as people save them, and as disks break them."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from overnight.tasks.ingest.listing.list_files import list_inputs
from overnight.tasks.ingest.sources import numpy as numpy_source
from overnight.tasks.ingest.sources.numpy import Numpy
from tests.contracts.sources.adapters.numpy import ARRAYS, value_of
from tests.contracts.sources.reading import canonical
from tests.tasks.ingest.conftest import Read, overwritten, read_all

Reader = Callable[..., Read]
RANDOM = np.random.default_rng(0)


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ARRAYS)
def test_an_array_in_a_file_of_its_own_comes_back_as_it_was_saved(tmp_path: Path, name: str) -> None:
    np.save(tmp_path / "a.npy", ARRAYS[name])
    found = read_all(Numpy(path=str(tmp_path)))
    assert [canonical(value) for value in found.column("data")] == [canonical(value_of(v)) for v in ARRAYS[name]]


def test_rows_are_numbered_through_a_file_whose_parts_are_units(read: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numpy_source, "PART_BYTES", 64)
    monkeypatch.setattr(numpy_source, "ROWS_AT_ONCE", 3)
    found = read(Numpy, {"a.npy": npy(np.arange(20))}, column="x")
    assert {name: row["x"] for name, row in found.good.items()} == {f"a.npy#{n}": n for n in range(20)}
    source = Numpy(path=found.good["a.npy#0"]["uri"])
    assert source.units(list_inputs(source, "all"))["first_row"].to_pylist() == [0, 8, 16]


def test_records_and_archives_have_a_column_a_field(read: Reader) -> None:
    records = np.array([(1, 2.5), (3, 4.5)], dtype=[("n", "i4"), ("größe", "f8")])
    files = {"a.npy": npy(records), "b.npz": npz(n=np.arange(2), größe=np.ones(2), image=np.zeros((2, 4, 4)))}
    found = read(Numpy, files)
    assert [(row["n"], row["größe"]) for row in found.good.values()] == [(1, 2.5), (3, 4.5), (0, 1.0), (1, 1.0)]
    assert found.good["b.npz#1"]["image"]["shape"] == [4, 4]


X = np.arange(1000.0)
NO_ARRAYS = {
    "empty.npy": (b"", "expected an array as numpy.save writes it"),
    "other.npy": (b"this is no array, but a text", "magic string"),
    "zip.npy": (npz(x=X), "magic string"),
    "header.npy": (npy(X)[:50], "expected an array as numpy.save writes it"),
    "objects.npy": (npy(np.array([{}, None]), allow_pickle=True), "Python objects"),
    "single.npy": (npy(np.float64(3)), "found a single value"),
    "fortran.npy": (npy(np.asfortranarray(np.ones((50, 50))))[:-9], "ends before its array does"),
    "empty.npz": (b"", "not a zip file"),
    "other.npz": (npy(X), "not a zip file"),
    "truncated.npz": (npz(x=X)[:-100], "not a zip file"),
    "unequal.npz": (npz(x=X, y=X[1:]), "expected arrays of the same length, found x: 1000, y: 999"),
    "none.npz": (npz(), "empty archive"),
    "objects.npz": (npz(x=np.array([{}])), "Python objects"),
}


def test_an_array_that_is_cut_off_loses_one_row_for_all_that_is_missing(read: Reader) -> None:
    found = read(Numpy, {"a.npy": npy(X)[:-12]})
    assert (len(found.good), found.bad) == (998, {"a.npy#998": "the file ends before this row"})


def headed(shape: str, is_fortran: bool = False, descr: str = "'<f4'") -> bytes:
    """A .npy file of four bytes whose header says something else."""
    header = f"{{'descr': {descr}, 'fortran_order': {is_fortran}, 'shape': {shape}, }}".ljust(501).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"1234"


@pytest.mark.parametrize("packing", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_however_an_archive_is_packed_damage_costs_its_own_rows(read: Reader, packing: int) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression=packing) as archive:
        archive.writestr("data.npy", npy(RANDOM.integers(0, 9, 20_000)))
    content = overwritten(buffer.getvalue(), len(buffer.getvalue()) // 2, len(buffer.getvalue()) // 2 + 30)
    found = read(Numpy, {"a.npz": content, "b.npz": npz(data=np.arange(3))})
    assert {row for row in found.good if row.startswith("b")} == {f"b.npz#{n}" for n in range(3)}
    assert found.bad


def test_an_archive_that_declares_more_than_it_can_hold_is_one_bad_row(read: Reader) -> None:
    content = bytearray(npz(data=np.arange(3)))
    entry = content.rfind(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = (4 * 10**9).to_bytes(4, "little")
    found = read(Numpy, {"a.npz": bytes(content)})
    assert list(found.bad) == ["a.npz"]
    assert "array data.npy: expected the packed size of 4,000,000,000 bytes, found 152 bytes" in found.bad["a.npz"]


def test_blocks_hold_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((20, 1024, 1024)))
    source = Numpy(path=str(tmp_path))
    units = source.units(list_inputs(source, "all"))
    blocks: list[pa.Table] = list(source.read(units, None))
    assert (len(units), {len(block) for block in blocks}) == (5, {2})


@pytest.mark.parametrize("kind", ["<U2", ">U2"])
def test_a_text_of_what_are_no_characters_costs_its_row_alone(read: Reader, kind: str) -> None:
    values = np.array(["ab", "cd", "ef", "g"], kind)
    values.view(kind.replace("U2", "u4"))[[2, 5]] = 0x110000, 0xD800
    fields = np.zeros(4, [("text", kind), ("n", "i4")])
    fields["text"], fields["n"] = values, range(4)
    found = read(Numpy, {"a.npy": npy(values), "b.npy": npy(fields)})
    assert {name: row.get("data", row.get("text")) for name, row in found.good.items()} == {
        f"{file}.npy#{row}": text for file in "ab" for row, text in ((0, "ab"), (3, "g"))
    }
    assert set(found.bad) == {"a.npy#1", "a.npy#2", "b.npy#1", "b.npy#2"}
    assert found.bad["b.npy#1"] == "column text: expected text, found numbers that are not characters of Unicode"
