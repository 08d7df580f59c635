"""The check whether workers fit on the nodes of a cluster: one node must have all resources of a worker free.

As in Ray, a worker that needs a fraction of a GPU gets it from one GPU, and one that needs several gets whole ones.
"""

from collections.abc import Sequence

from overnight.tasks.resources.needs import Nodes, Resources

TINY = 1e-6


class Room:
    """The resources of each node that are still free. Workers go to the first node that has room."""

    def __init__(self, nodes: Nodes) -> None:
        self._free = list(map(dict, nodes))
        self._gpus = [[1.0] * int(node.get("GPU", 0)) for node in nodes]
        self._first: dict[tuple[tuple[str, float], ...], int] = {}  # by needs: nodes before it have no room for them

    def take(self, needs: Resources) -> bool:
        """Reserve `needs` for one worker. Return False, and reserve nothing, if no node has room."""
        key = tuple(sorted(needs.items()))
        number = self._first.get(key, 0)
        while number < len(self._free) and not self._take_on(number, needs):
            number += 1
        self._first[key] = number
        return number < len(self._free)

    def _take_on(self, number: int, needs: Resources) -> bool:
        free, gpus = self._free[number], self._gpus[number]
        if any(free.get(name, 0) + TINY < amount for name, amount in needs.items()):
            return False
        devices = _devices(gpus, needs.get("GPU", 0))
        if devices is None:
            return False
        for name, amount in needs.items():
            free[name] -= amount
        for device in devices:
            gpus[device] -= min(needs["GPU"], 1.0)
        return True

    def take_all(self, workers: Sequence[Resources]) -> bool:
        """Reserve the needs of `workers`, the most demanding first. Return False at the first that finds no room."""
        return all(map(self.take, sorted(workers, key=_demand, reverse=True)))


def _demand(needs: Resources) -> tuple[float, int, int, float]:
    """Return the sort key of a worker: what few nodes have comes before CPUs and memory."""
    rare = len(needs.keys() - {"CPU", "memory"})
    return needs.get("GPU", 0), rare, len(needs), needs.get("CPU", 0)


def _devices(free: list[float], amount: float) -> list[int] | None:
    """Return the numbers of the GPUs that a worker gets, or None if there are not enough."""
    count = round(amount) if amount >= 1 else int(amount > 0)
    devices = [number for number, share in enumerate(free) if share + TINY >= min(amount, 1.0)][:count]
    return devices if len(devices) == count else None
