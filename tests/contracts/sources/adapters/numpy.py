"""Archives of NumPy, written and read by NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from overnight.tasks.ingest.sources.numpy import Numpy
from tests.contracts.sources.adapter import NO_COLUMNS, NO_WHERE, Adapter, Damage
from tests.tasks.ingest.conftest import overwritten, rewritten

TIMES = ["0001-01-04", "9999-12-31", "1969-12-31"]
LIMITS = [np.iinfo(kind) for kind in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")]
# An array for each type that NumPy can save, without objects.
DATES, CLOCK = ("Y", "M", "W", "D"), ("h", "m", "s", "ms", "us")
ARRAYS: dict[str, np.ndarray] = {
    **{limits.dtype.str: np.array([limits.min, limits.max, 1], limits.dtype) for limits in LIMITS},
    **{f"float{bits}": np.array([np.nan, np.inf, -0.0], f"f{bits // 8}") for bits in (16, 32, 64)},
    "big endian": np.array([1, -1, 2**40], ">i8"),
    "truth": np.array([True, False, True]),
    "text": np.array(["", "é🦉", "02116"]),
    "big text": np.array(["", "é🦉", "02116"], ">U5"),
    "bytes": np.array([b"", b"\xff", b"abc"]),
    **{f"datetime64[{unit}]": np.array(TIMES, f"M8[{unit}]") for unit in DATES + CLOCK},
    "nanoseconds": np.array([-1, 2**62, -(2**63)], "M8[ns]"),
    **{f"timedelta64[{unit}]": np.array([-1, 0, 7], f"m8[{unit}]") for unit in DATES[2:] + CLOCK},
    "nanoseconds of duration": np.array([-1, 2**62, -(2**63)], "m8[ns]"),
    "vector": np.array([[1.5, np.nan], [0, 1], [2, 3]], np.float32),
    "image": np.arange(3 * 2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 3),
    "column-major": np.asfortranarray(np.arange(6.0).reshape(3, 2)),
    "tens of seconds": np.array([1, -1, 2**30], "M8[10s]"),
    "tens of seconds of duration": np.array([1, -1, 2**30], "m8[10s]"),
}  # fmt: skip


def value_of(value: Any) -> Any:
    """A value of an array as Python has it; pandas' for nanoseconds, which Python has no type for."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        if np.isnat(value):
            return None
        if np.datetime_data(value)[0] == "ns":
            return pd.Timestamp(value) if isinstance(value, np.datetime64) else pd.Timedelta(value)
        value = value.astype(f"{value.dtype.kind}8[{np.datetime_data(value.dtype)[0]}]")
    return value if isinstance(value, np.ndarray) else value.item()


class NumpyArchives(Adapter):
    kind = "numpy"
    leaf = Numpy
    extension = ".npz"
    values = pa.table({"name": list(ARRAYS)})
    damages = {
        "cut": Damage(rewritten(lambda content: content[:-3]), "expected arrays as numpy.savez writes them"),
        "a byte": Damage(rewritten(lambda content: overwritten(content, 150, 170)), "Bad CRC-32"),
    }
    not_applicable = {
        "columns": NO_COLUMNS,
        "where": NO_WHERE,
    }

    def write(self, folder: Path, name: str, rows: pa.Table) -> Path:
        path = self.place(folder, name)
        if "name" in rows.column_names:
            arrays = ARRAYS
        else:
            arrays = {
                key: np.array(column.to_pylist(), None if len(column) else "U1")
                for key, column in zip(rows.column_names, rows.columns, strict=True)
            }
        with path.open("wb") as file:
            np.savez(file, **arrays)
        return path

    def expected(self, folder: Path) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for path in sorted(folder.rglob("*.npz")):
            arrays = dict(np.load(path))
            count = len(next(iter(arrays.values())))
            rows += [{name: value_of(array[place]) for name, array in arrays.items()} for place in range(count)]
        return rows
