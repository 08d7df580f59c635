"""Pickle objects for a process of its own and back, without Ray. Tables go without unused rows."""

import io
import pickle
from typing import Any

import cloudpickle
import pyarrow as pa


def pickled(thing: Any) -> memoryview:
    """Return the bytes of an object's pickle. A slice of a table is pickled without the table's other rows."""
    buffer = io.BytesIO()
    _Pickler(buffer).dump(thing)
    return buffer.getbuffer()


def is_picklable(thing: Any) -> bool:
    """Return True if an object survives pickling and unpickling."""
    try:
        pickle.loads(cloudpickle.dumps(thing))
        return True
    except Exception:
        return False


class _Pickler(cloudpickle.Pickler):
    """A pickler that includes only a table's own rows: pickle takes the whole buffers that a slice refers to."""

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, pa.Table):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, thing.schema) as stream:
                stream.write_table(thing)
            return _table, (sink.getvalue().to_pybytes(),)
        return super().reducer_override(thing)


def _table(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
