"""What the fault tests share."""

from tests.flows.conftest import run_job

__all__ = ["run_job"]
