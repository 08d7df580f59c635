"""An answer without a limit: it is unpacked to a bound, and costs its own row."""

import functools
import resource
import zlib

import pytest

from overnight.tasks.errors import JobError, RowError
from overnight.tasks.infer.endpoint.transport import MOST_BYTES
from tests.contracts.endpoints.suite import ENDPOINTS, Adapter, ask
from tests.tasks.infer.chat_server import ChatServer, Reply, completion

TIMES = 8  # the limit


@functools.cache
def packed() -> bytes:
    """Return zeros of `TIMES` the limit, in gzip."""
    packer, zeros = zlib.compressobj(1, wbits=16 + zlib.MAX_WBITS), bytes(MOST_BYTES // 64)
    return b"".join(packer.compress(zeros) for _ in range(64 * TIMES)) + packer.flush()


def bomb(status: int = 200) -> Reply:
    return Reply(status, packed(), (("Content-Encoding", "gzip"),))


@ENDPOINTS.promise(
    "an answer that is larger than the limit is not unpacked any further, costs its row, and is paid once"
)
def test_bombs(leaf: Adapter, server: ChatServer) -> None:
    server.always = {"bomb": bomb(), "refused": bomb(400)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    done = ask(leaf, server, ["good", "bomb", "refused"])
    assert list(done.failed) == [1, 2]
    assert isinstance(done.failed[1], RowError)
    assert f"an answer of more than {MOST_BYTES:,} bytes" in str(done.failed[1])
    assert server.requests()["bomb"] == 1
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < (TIMES - 3) * MOST_BYTES / 1024  # in KiB


@pytest.mark.parametrize("encoding", ["br", "gzip, gzip"])
@ENDPOINTS.promise("an answer in an encoding that was not asked for is refused with its name")
def test_other_encodings(leaf: Adapter, server: ChatServer, encoding: str) -> None:
    server.down = Reply(200, completion("packed"), (("Content-Encoding", encoding),))
    with pytest.raises(JobError, match=f"encoding '{encoding}'"):
        ask(leaf, server, ["good"])
