"""The records of a TFRecord file, each compared with its check sums (CRC-32C), and the content of a tf.train.Example.

https://www.tensorflow.org/tutorials/load_data/tfrecord#tfrecords_format_details describes the format, and
https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto the message.
"""

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError
from overnight.tasks.ingest.formats.gzip_stream import pieces
from overnight.tasks.ingest.reading.file_errors import too_large

ELEMENTS = {"bytes_list": pa.large_binary(), "float_list": pa.float32(), "int64_list": pa.int64()}


def records(stream: Any, most: int) -> Iterator[bytes | RowError]:
    """Yield the records of a file, with a `RowError` for one of another check sum or of more than `most` bytes."""
    checksum = require_extra("google_crc32c", "source.kind: tfrecord", "ingest").value
    while head := b"".join(pieces(stream, 12)):
        if len(head) < 12:
            raise RowError(f"expected the length of a record, found {len(head)} bytes at the end of the file")
        if checksum(head[:8]) != _unmasked(head[8:]):
            raise RowError(f"expected the length of a record and its check sum, found {head!r}")
        (length,) = struct.unpack("<Q", head[:8])
        content = b""
        if length > most:
            size = sum(map(len, pieces(stream, length + 4)))
        else:
            content = b"".join(pieces(stream, length + 4))
            size = len(content)
        if size < length + 4:
            sentence = f"expected a record of {length:,} bytes and its check sum"
            raise RowError(f"{sentence}, found {size:,} bytes at the end of the file")
        record = content[:length]
        if length > most:
            yield too_large("a record", length, most, "max_row_bytes")
        elif checksum(record) == _unmasked(content[length:]):
            yield record
        else:
            yield RowError(f"a record of {length:,} bytes does not match its check sum")


def _unmasked(stored: bytes) -> int:
    (masked,) = struct.unpack("<I", stored)
    bits = (masked - 0xA282EAD8) & 0xFFFFFFFF
    return ((bits >> 17) | (bits << 15)) & 0xFFFFFFFF


def features_of(record: bytes) -> dict[str, tuple[str, list[Any]]]:
    """Return by name the kind of each feature's list, such as `int64_list`, and its values, if there are any."""
    require_extra("google.protobuf", "source.kind: tfrecord", "ingest")
    from google.protobuf.message import DecodeError

    example = _message()()
    try:
        example.ParseFromString(record)
    except DecodeError as error:
        raise RowError(f"expected a tf.train.Example, found {len(record):,} bytes that do not parse: {error}") from None
    features = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if values:
            features[name] = kind, values
    return features


@lru_cache(maxsize=1)
def _message() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

    def field(name: str, number: int, kind: str, **more: Any) -> dict[str, Any]:
        label = "LABEL_OPTIONAL"
        if kind.startswith("."):
            more["type_name"], kind = kind, "MESSAGE"
        return {"name": name, "number": number, "type": f"TYPE_{kind}", "label": label, **more}

    repeated = {"label": "LABEL_REPEATED"}
    lists = {"BytesList": "BYTES", "FloatList": "FLOAT", "Int64List": "INT64"}
    messages: list[dict[str, Any]] = []
    members: list[dict[str, Any]] = []
    for number, (name, (kind, element)) in enumerate(zip(ELEMENTS, lists.items(), strict=True), 1):
        messages.append({"name": kind, "field": [field("value", 1, element, **repeated)]})
        members.append(field(name, number, f".tensorflow.{kind}", oneof_index=0))
    messages.append({"name": "Feature", "field": members, "oneof_decl": [{"name": "kind"}]})
    entry = {
        "name": "FeatureEntry",
        "field": [field("key", 1, "STRING"), field("value", 2, ".tensorflow.Feature")],
        "options": {"map_entry": True},
    }
    feature = field("feature", 1, ".tensorflow.Features.FeatureEntry", **repeated)
    messages.append({"name": "Features", "field": [feature], "nested_type": [entry]})
    messages.append({"name": "Example", "field": [field("features", 1, ".tensorflow.Features")]})
    file = {"name": "overnight/tf_example.proto", "package": "tensorflow", "syntax": "proto3", "message_type": messages}
    pool = descriptor_pool.DescriptorPool()  # a pool of its own: TensorFlow may be loaded too
    pool.Add(json_format.ParseDict(file, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
