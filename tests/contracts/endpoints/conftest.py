"""The server of the tests of rooms, for the suite too."""

from tests.tasks.infer.conftest import server

__all__ = ["server"]
