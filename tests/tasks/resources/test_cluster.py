"""Which nodes of its cluster a run has lost."""

from typing import Any

from overnight.tasks.resources.cluster import lost_nodes


def node(name: str, alive: bool, reason: int = 0, message: str = "", address: str = "10.0.0.7") -> dict[str, Any]:
    """Return a node as `ray.nodes()` reports it."""
    told = {"NodeID": f"id-{name}", "Alive": alive, "NodeName": name, "NodeManagerAddress": address}
    return told | {"DeathReason": reason, "DeathReasonMessage": message}


def test_a_node_that_died_is_named_with_its_address_and_the_reason() -> None:
    nodes = [node("a", True), node("b", False, 2, "missed too many heartbeats")]
    assert lost_nodes({"id-a", "id-b"}, nodes) == [
        "node b at 10.0.0.7 ended (missed too many heartbeats); other nodes take its work"
    ]


def test_a_node_without_a_reason_is_lost_too_and_a_name_that_is_its_address_is_said_once() -> None:
    [told] = lost_nodes({"id-10.0.0.8"}, [node("10.0.0.8", False, address="10.0.0.8")])
    assert told.startswith("node 10.0.0.8 ended (no reason);")


def test_nodes_that_are_new_that_died_earlier_or_that_had_nothing_to_do_are_not_lost() -> None:
    nodes = [node("new", True), node("earlier", False, 2), node("idle", False, 4)]
    assert lost_nodes({"id-idle"}, nodes) == []


def test_a_cluster_that_knows_none_of_the_nodes_before_has_another_head() -> None:
    [told] = lost_nodes({"id-a", "id-b"}, [node("c", True), node("d", True)])
    assert told.startswith("no node of the attempt before is left")
    assert lost_nodes((), [node("c", True)]) == []  # an attempt that is the first


def test_ray_still_gives_idle_nodes_that_reason() -> None:
    from ray.core.generated.common_pb2 import NodeDeathInfo

    from overnight.tasks.resources.cluster import IDLE

    assert NodeDeathInfo.Reason.Name(IDLE) == "AUTOSCALER_DRAIN_IDLE"
