"""Keys: of a model by what decides its results, and of a row by the values that the model reads of it.

So a key does not name the source, the steps or the models before: they count by the values that they made.
"""

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import types

from overnight.tasks.rows.arrow_types import is_bytes, is_text, kinds_in
from overnight.tasks.rows.tensors import TENSOR

FORMAT_VERSION = 2  # of keys and remembered rows
KEY_BYTES = 16
PACKAGES = (  # their code makes the results
    *("overnight", "numpy", "torch", "transformers", "tokenizers", "llguidance", "vllm"),
    *("onnxruntime", "sentence-transformers", "scikit-learn", "keras"),
)
HEX_DIGITS = 32

# of a column: for each row the parts of its value, none for null
Values = Sequence[tuple[bytes | memoryview, ...]]


def model_key(settings: Mapping[str, Any], files: Mapping[str, str], targets: Iterable[str] = ()) -> str:
    """Return the key of a model with these settings that change results, and these versions of files and code.

    `targets` name code, as `module:Name`. The versions of their installed packages count.
    """
    packages = {*PACKAGES}
    for target in targets:
        packages.update(_distributions().get(target.partition(":")[0].partition(".")[0], ()))
    content = [FORMAT_VERSION, dict(settings), dict(files), _versions(frozenset(packages))]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:HEX_DIGITS]


_distributions = functools.cache(metadata.packages_distributions)


@functools.cache
def _versions(packages: frozenset[str]) -> dict[str, str]:
    versions = {}
    for package in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    return versions


def row_keys(rows: pa.Table) -> list[bytes] | None:
    """Return a digest of each row's values, with the names and types of the columns; None if a type has no digest."""
    head = hashlib.sha256(repr([(field.name, str(field.type)) for field in rows.schema]).encode())
    try:
        columns = list(map(_values, rows.columns))
    except (TypeError, pa.ArrowException):
        return None
    keys = []
    for row in range(len(rows)):
        digest = head.copy()
        for column in columns:
            parts = column[row]
            digest.update(b"%d:" % len(parts))
            for part in parts:
                digest.update(b"%d:" % len(part))
                digest.update(part)
        keys.append(digest.digest()[:KEY_BYTES])
    return keys


def _values(column: pa.ChunkedArray) -> Values:
    """Return the parts of each value. Raise `TypeError` for a type that Python may write in short."""
    array = pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if kind == TENSOR:
        return _tensors(array)
    if _has_width(kind):
        return _numbers(array, array, 1)
    if types.is_fixed_size_list(kind) and _has_width(kind.value_type):
        start, stop = array.offset * kind.list_size, (array.offset + len(array)) * kind.list_size
        return _numbers(array, array.values[start:stop], kind.list_size)
    if is_text(kind):
        array = array.cast(pa.large_binary())
    if is_bytes(array.type):
        return [() if value is None else (value,) for value in array.to_pylist()]
    for inner in kinds_in(kind):
        if isinstance(inner, pa.BaseExtensionType) or types.is_union(inner) or types.is_map(inner):
            raise TypeError(f"no digest of {kind}")
    return list(map(_written, array))


def _written(value: pa.Scalar) -> tuple[bytes, ...]:
    """Return a value as Python writes it: -0.0 and 0.0, or a null and an empty list, are different ones."""
    return (repr(value.as_py()).encode("utf-8", "surrogatepass"),) if value.is_valid else ()


def _has_width(kind: pa.DataType) -> bool:
    is_number = types.is_integer(kind) or types.is_floating(kind)
    return is_number or types.is_temporal(kind) or types.is_decimal(kind)


def _numbers(array: pa.Array, numbers: pa.Array, count: int) -> Values:
    """Return the bytes of each row's `count` numbers."""
    size = numbers.type.bit_width // 8
    buffer = memoryview(numbers.buffers()[1] or b"")[numbers.offset * size :]
    is_whole = np.ones(len(array), bool)
    if array.null_count or numbers.null_count:
        is_whole = numbers.is_valid().to_numpy(zero_copy_only=False).reshape(len(array), count).all(axis=1)
        is_whole &= array.is_valid().to_numpy(zero_copy_only=False)
    values: list[tuple[bytes | memoryview, ...]] = []
    for row, has_all in enumerate(is_whole.tolist()):
        if has_all:
            values.append((buffer[row * count * size : (row + 1) * count * size],))
        else:
            values.append((b"nulls", *_written(array[row])) if array[row].is_valid else ())
    return values


def _tensors(array: pa.StructArray) -> Values:
    data = array.field("data")
    _, offsets_buffer, content = data.buffers()
    buffer = memoryview(content or b"")
    offsets = np.frombuffer(offsets_buffer or bytes(8), np.int64)[data.offset : data.offset + len(array) + 1].tolist()
    heads = zip(array.field("dtype").to_pylist(), array.field("shape").to_pylist(), strict=True)
    values: list[tuple[bytes | memoryview, ...]] = []
    for row, (is_valid, head) in enumerate(zip(array.is_valid().to_pylist(), heads, strict=True)):
        values.append((repr(head).encode(), buffer[offsets[row] : offsets[row + 1]]) if is_valid else ())
    return values
