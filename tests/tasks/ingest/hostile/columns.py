"""Hostile files of Parquet, of Arrow and of NumPy."""

import io
import struct
import zipfile

import numpy as np

from overnight.tasks.ingest.sources.huggingface import HuggingFace
from overnight.tasks.ingest.sources.numpy import Numpy
from overnight.tasks.ingest.sources.parquet import Parquet
from tests.tasks.ingest.hostile.cases import Case, Family, cases
from tests.tasks.ingest.sources import test_huggingface, test_numpy, test_parquet
from tests.tasks.ingest.sources.test_numpy import headed

ROWS = 100


def arrow(*counts: tuple[int, int]) -> bytes:
    """A stream of a batch of 100 rows, in whose header numbers are others: (found, instead)."""
    content = test_huggingface.stream({"n": range(ROWS), "text": test_huggingface.TEXT})
    for found, instead in counts:
        assert struct.pack("<q", found) in content
        content = content.replace(struct.pack("<q", found), struct.pack("<q", instead))
    return content


def bomb() -> bytes:
    """An archive of 256 kB that holds an array of 256 MB of zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("data.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": (64, 2**22)})
        for _ in range(64):
            member.write(bytes(2**22))
    return file.getvalue()


PARQUET = Family(
    Parquet,
    "parquet",
    test_parquet.file({"x": [f"{i:040d}" for i in range(ROWS)]}),
    ROWS,
    {f"{name}.parquet": Case(content, 0, words) for name, (content, words) in test_parquet.NO_PARQUET.items()},
    {
        f"{rows}-rows-{''.join(map(str, places))}.parquet": Case(
            test_parquet.declaring(rows, places), 0, "by the footer"
        )
        for rows, places in ((10**15, [0]), (10**8, [1]), (7776, [0, 2]), (-25, [2]), (10**15, [0, 1, 2]), (-25, [0]))
    },
)
ARROW = Family(
    HuggingFace,
    "arrow",
    test_huggingface.stream({"n": range(ROWS), "text": test_huggingface.TEXT}),
    ROWS,
    cases(test_huggingface.BROKEN),
    {
        "rows.arrow": Case(arrow((ROWS, 10**12)), 0, "expected"),
        "fewer-rows.arrow": Case(arrow((ROWS, 7)), 0, "expected 7 rows in a batch, as it declares, found 800 bytes in"),
        "negative-rows.arrow": Case(arrow((ROWS, -1)), 0, "expected"),
        "bytes.arrow": Case(arrow((800, 2**40)), 0, "expected"),
        "fewer-bytes.arrow": Case(arrow((800, 8)), 0, "expected"),
        "negative-bytes.arrow": Case(arrow((800, -8)), 0, "expected"),
    },
)
NUMPY = Family(
    Numpy,
    "npy",
    test_numpy.npy(np.arange(3)),
    3,
    {name: Case(content, 0, words) for name, (content, words) in test_numpy.NO_ARRAYS.items()},
    {
        "rows.npy": Case(headed(f"({10**12},)"), 1, "the file ends before this row"),
        "long-rows.npy": Case(headed(f"(2, {10**12})"), 0, "the file ends before this row"),
        "columns.npy": Case(headed(f"({10**9}, 1000)", is_fortran=True), 0, "the file ends before its array does"),
        "less-than-nothing.npy": Case(headed("(-1,)"), 0, "each of a length from 0 on"),
        "axes.npy": Case(headed(f"({'1, ' * 70})"), 0, "expected at most 64 axes"),
        "type.npy": Case(headed("(1,)", descr="'<f16'"), 0, "expected"),
        "objects.npy": Case(headed("(1,)", descr="'|O'"), 0, "Python objects"),
    },
    {"bomb.npz": Case(bomb(), 64, "")},
)
FAMILIES = {"parquet": PARQUET, "huggingface": ARROW, "numpy": NUMPY}
