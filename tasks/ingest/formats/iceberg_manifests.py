"""Manifests of Iceberg, looked through before pyiceberg decodes them: a damaged one is an error, and ends no process.

The decoder of pyiceberg 0.12 that is compiled believes the lengths in a file and reads beyond its end:
https://github.com/apache/iceberg-python/issues/3952. Its decoder in Python does not. This file goes when a release has
the bounds.
"""

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from pyiceberg.avro.decoder import StreamingBinaryDecoder
from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
from pyiceberg.avro.reader import Reader
from pyiceberg.avro.resolver import construct_reader
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile
from pyiceberg.utils.schema_conversion import AvroSchemaConversion


class BoundedFiles(FileIO):
    """Reads the files of `files`; raises `ValueError` or `EOFError` for an Avro file with lengths beyond its end."""

    def __init__(self, files: FileIO) -> None:
        super().__init__(files.properties)
        self._files = files

    def new_input(self, location: str) -> InputFile:
        return _Bounded(location, self._files.new_input(location))

    def new_output(self, location: str) -> OutputFile:
        return self._files.new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        self._files.delete(location)


class _Bounded(InputFile):
    def __init__(self, location: str, file: InputFile) -> None:
        super().__init__(location)
        self._file = file

    def __len__(self) -> int:
        return len(self._file)

    def exists(self) -> bool:
        return self._file.exists()

    def open(self, seekable: bool = True) -> InputStream:
        with self._file.open(seekable) as opened:
            content = opened.read()
        refuse_lengths_beyond_the_end(content)
        return io.BytesIO(content)


def refuse_lengths_beyond_the_end(content: bytes) -> None:
    """Read an Avro file without keeping anything. Raise what its damage makes of it: any `Exception`."""
    decoder = StreamingBinaryDecoder(content)
    header: Any = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    codec, reader = header.compression_codec(), _reader(header.meta.get("avro.schema", "null"))
    while decoder.tell() < len(content):
        count, block = decoder.read_int(), decoder.read_bytes()
        _read_all(codec.decompress(block) if codec else block, count, reader.read)
        if decoder.read(len(header.sync)) != header.sync:
            raise ValueError(f"expected the mark {header.sync!r} behind a block")


@lru_cache(maxsize=16)
def _reader(schema: str) -> Reader:
    """Return the reader of a schema. It is kept: to make one takes longer than to read a manifest."""
    return construct_reader(AvroSchemaConversion().avro_to_iceberg(json.loads(schema)))


def _read_all(block: bytes, count: int, read: Callable[[StreamingBinaryDecoder], object]) -> None:
    if count > len(block):
        raise ValueError(f"expected {count:,} records, as a block declares, found {len(block):,} bytes")
    decoder = StreamingBinaryDecoder(block)
    for _ in range(count):
        read(decoder)
