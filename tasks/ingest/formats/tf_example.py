"""tf.train.Example without TensorFlow: its message, built from TensorFlow's definition, and the content of a record.

https://github.com/tensorflow/tensorflow/blob/master/tensorflow/core/example/feature.proto
"""

from functools import lru_cache
from typing import Any

import pyarrow as pa

from overnight.tasks.config.extras import require_extra
from overnight.tasks.errors import RowError

ELEMENTS = {"bytes_list": pa.large_binary(), "float_list": pa.float32(), "int64_list": pa.int64()}


def features_of(record: bytes) -> dict[str, tuple[str, list[Any]]]:
    """Return the features of a record by name: for each the kind of its list, such as `int64_list`, and its values.

    Features without values are left out. Raise `RowError` if the record is not a tf.train.Example.
    """
    require_extra("google.protobuf", "source.kind: tfrecord", "ingest")
    from google.protobuf.message import DecodeError

    example = _message()()
    try:
        example.ParseFromString(record)
    except DecodeError as error:
        raise RowError(f"expected a tf.train.Example, found {len(record):,} bytes that do not parse: {error}") from None
    found = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if values:
            found[name] = kind, values
    return found


@lru_cache(maxsize=1)
def _message() -> Any:
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="overnight/tf_example.proto", package="tensorflow", syntax="proto3")
    field = descriptor_pb2.FieldDescriptorProto

    def add(message: str, *fields: tuple[str, int, int, str], repeated: bool = False) -> Any:
        described = file.message_type.add(name=message)
        for name, number, kind, type_name in fields:
            described.field.add(
                name=name,
                number=number,
                type=kind,
                type_name=type_name or None,
                label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL,
            )
        return described

    for name, kind in (("BytesList", "BYTES"), ("FloatList", "FLOAT"), ("Int64List", "INT64")):
        add(name, ("value", 1, getattr(field, f"TYPE_{kind}"), ""), repeated=True)
    lists = [("bytes_list", 1, "BytesList"), ("float_list", 2, "FloatList"), ("int64_list", 3, "Int64List")]
    feature = add("Feature", *((name, n, field.TYPE_MESSAGE, f".tensorflow.{kind}") for name, n, kind in lists))
    feature.oneof_decl.add(name="kind")
    for member in feature.field:
        member.oneof_index = 0
    features = add("Features", ("feature", 1, field.TYPE_MESSAGE, ".tensorflow.Features.FeatureEntry"), repeated=True)
    entry = features.nested_type.add(name="FeatureEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=field.TYPE_STRING, label=field.LABEL_OPTIONAL)
    entry.field.add(
        name="value", number=2, type=field.TYPE_MESSAGE, type_name=".tensorflow.Feature", label=field.LABEL_OPTIONAL
    )
    add("Example", ("features", 1, field.TYPE_MESSAGE, ".tensorflow.Features"))
    pool = descriptor_pool.DescriptorPool()  # a pool of its own: TensorFlow may be loaded too
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))
