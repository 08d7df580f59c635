"""Pickle objects for a process of its own and back, without Ray. Tables go without unused rows."""

import io
import pickle
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import pyarrow as pa

COUNT_BYTES = 4  # of the number of buffers that follow
BYTES_APART = 2**20  # a buffer as large as this follows its object


def send(connection: Connection, thing: Any) -> None:
    """Send an object. A slice of a table is sent without the table's other rows, and without a copy of large ones."""
    buffers: list[memoryview] = []

    def is_small(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes < BYTES_APART:
            return True
        buffers.append(raw)
        return False

    file = io.BytesIO()
    _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL, buffer_callback=is_small).dump(thing)
    connection.send_bytes(len(buffers).to_bytes(COUNT_BYTES) + file.getbuffer())
    for buffer in buffers:
        connection.send_bytes(buffer)


def receive(connection: Connection) -> Any:
    """Return what `send` sent from the other end. Raise `EOFError` or `ConnectionError` if that end is closed."""
    message = connection.recv_bytes()
    buffers = [connection.recv_bytes() for _ in range(int.from_bytes(message[:COUNT_BYTES]))]
    return pickle.loads(memoryview(message)[COUNT_BYTES:], buffers=buffers)


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
            return _table, (sink.getvalue(),)
        return super().reducer_override(thing)


def _table(data: pa.Buffer) -> pa.Table:
    return pa.ipc.open_stream(data).read_all()
