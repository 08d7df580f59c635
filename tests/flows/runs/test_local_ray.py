"""A Ray of this machine that has ended is noticed, and one that is busy or elsewhere is not taken for ended."""

import socket

import pytest

from overnight.flows.runs.local_ray import REFUSALS, LocalRay, RayEnded


def test_a_gcs_that_refuses_several_connections_in_a_row_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        gcs = LocalRay(address)
        for _ in range(REFUSALS + 1):
            gcs.check()
    for _ in range(REFUSALS - 1):
        gcs.check()
    with pytest.raises(RayEnded) as ended:
        gcs.check()
    assert (ended.value.error_type, address in ended.value.message) == ("RayEnded", True)


def test_the_ray_of_a_cluster_is_not_checked() -> None:
    for _ in range(REFUSALS + 1):
        LocalRay("").check()
