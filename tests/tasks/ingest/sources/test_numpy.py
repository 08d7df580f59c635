"""NumPy files as people save them, and as disks break them."""

import io
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
from tests.tasks.ingest.conftest import Read, read_all

Reader = Callable[..., Read]


def npy(array: Any, **options: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


def npz(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, **arrays)
    return buffer.getvalue()


def test_an_array_in_a_file_of_its_own_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    for name, array in ARRAYS.items():
        np.save(tmp_path / "a.npy", array)
        found = read_all(Numpy(path=str(tmp_path / "a.npy")))
        assert [canonical(value) for value in found.column("data")] == [canonical(value_of(v)) for v in array], name


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


def headed(shape: str, is_fortran: bool = False, descr: str = "'<f4'") -> bytes:
    """A .npy file of four bytes whose header says something else."""
    header = f"{{'descr': {descr}, 'fortran_order': {is_fortran}, 'shape': {shape}, }}".ljust(501).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + b"1234"


X = np.arange(1000.0)
HOSTILE = {
    "empty.npy": (b"", 0, "expected an array as numpy.save writes it"),
    "zip.npy": (npz(x=X), 0, "magic string"),
    "objects.npy": (npy(np.array([{}, None]), allow_pickle=True), 0, "Python objects"),
    "single.npy": (npy(np.float64(3)), 0, "found a single value"),
    "fortran.npy": (npy(np.asfortranarray(np.ones((50, 50))))[:-9], 0, "ends before its array does"),
    "empty.npz": (b"", 0, "not a zip file"),
    "unequal.npz": (npz(x=X, y=X[1:]), 0, "expected arrays of the same length, found x: 1000, y: 999"),
    "none.npz": (npz(), 0, "empty archive"),
    "objects.npz": (npz(x=np.array([{}])), 0, "Python objects"),
    "rows.npy": (headed(f"({10**12},)"), 1, "the file ends before this row"),
    "long-rows.npy": (headed(f"(2, {10**12})"), 0, "the file ends before this row"),
    "columns.npy": (headed(f"({10**9}, 1000)", is_fortran=True), 0, "the file ends before its array does"),
    "less-than-nothing.npy": (headed("(-1,)"), 0, "each of a length from 0 on"),
    "axes.npy": (headed(f"({'1, ' * 70})"), 0, "expected at most 64 axes"),
    "type.npy": (headed("(1,)", descr="'<f16'"), 0, "expected"),
}


def test_an_array_that_is_cut_off_loses_one_row_for_all_that_is_missing(read: Reader) -> None:
    found = read(Numpy, {"a.npy": npy(X)[:-12]})
    assert (len(found.good), found.bad) == (998, {"a.npy#998": "the file ends before this row"})


def test_an_array_of_texts_that_is_cut_off_before_its_first_row_says_so(read: Reader) -> None:
    found = read(Numpy, {"a.npy": npy(np.array(["ab", "cd"]))[:-16]})
    assert found.bad == {"a.npy#0": "the file ends before this row"}


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
