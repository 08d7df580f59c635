"""Checks manifests of Iceberg before pyiceberg decodes them: a damaged one raises an error, and ends no process.

The compiled decoder of pyiceberg 0.12 trusts the lengths in a file, and reads beyond the end of the file:
https://github.com/apache/iceberg-python/issues/3952. pyiceberg's decoder in Python does not. This file can be removed
when a release of pyiceberg checks the lengths.
"""

import io
import json
from functools import lru_cache
from typing import Any


class BoundedFiles:
    """A read-only `FileIO`, made of the table's own, with which pyiceberg plans a scan."""

    def __init__(self, files: Any) -> None:
        self._files = files
        self.properties = files.properties

    def new_input(self, location: str) -> "BoundedFile":
        return BoundedFile(self._files.new_input(location))


class BoundedFile:
    """An Avro file as an `InputFile` of pyiceberg, which is read and checked when it is opened."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.location = file.location

    def __len__(self) -> int:
        return len(self._file)

    def open(self, seekable: bool = True) -> io.BytesIO:
        """Return the whole file in memory. Raise the decoder's error if it is damaged."""
        with self._file.open(seekable) as handle:
            content = handle.read()
        _read_once(content)
        return io.BytesIO(content)


def _read_once(content: bytes) -> None:
    """Read all of an Avro file by the decoder that stays within the file. Raise its error for damage."""
    from pyiceberg.avro.decoder import StreamingBinaryDecoder
    from pyiceberg.avro.file import META_SCHEMA, AvroFileHeader
    from pyiceberg.avro.resolver import construct_reader

    decoder = StreamingBinaryDecoder(content)
    header: Any = construct_reader(META_SCHEMA, {-1: AvroFileHeader}).read(decoder)
    codec, reader = header.compression_codec(), _reader(header.meta.get("avro.schema", "null"))
    while decoder.tell() < len(content):
        count, packed = decoder.read_int(), decoder.read_bytes()
        block = codec.decompress(packed) if codec else packed
        if count > len(block):
            raise ValueError(f"expected {count:,} records, as a block declares, found {len(block):,} bytes")
        records = StreamingBinaryDecoder(block)
        for _ in range(count):
            reader.read(records)
        if decoder.read(len(header.sync)) != header.sync:
            raise ValueError(f"expected the mark {header.sync!r} behind a block")


@lru_cache(maxsize=16)
def _reader(schema: str) -> Any:
    """Return pyiceberg's reader of a schema, from a cache: making it takes longer than reading a manifest."""
    from pyiceberg.avro.resolver import construct_reader
    from pyiceberg.utils.schema_conversion import AvroSchemaConversion

    return construct_reader(AvroSchemaConversion().avro_to_iceberg(json.loads(schema)))
