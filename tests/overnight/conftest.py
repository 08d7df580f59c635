"""The command line's tests run the flows' small jobs."""

from tests.flows.conftest import overnight, overnight_process, pictures, run_job  # noqa: F401
