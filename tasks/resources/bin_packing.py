"""The check whether workers fit on the nodes of a cluster: one node must have all resources of a worker free.

As in Ray, a worker that needs a fraction of a GPU gets it from one GPU, and one that needs several gets whole ones.
"""

from collections.abc import Mapping, Sequence

TINY = 1e-6


class Room:
    """The resources of each node that are still free. Workers go to the first node that has room.

    `nodes` has the resources of each node, as Ray's resource name -> amount.
    """

    def __init__(self, nodes: Sequence[Mapping[str, float]]) -> None:
        self._free = [dict(node) for node in nodes]
        self._gpus = [[1.0] * int(node.get("GPU", 0)) for node in nodes]
        self._first: dict[
            tuple[tuple[str, float], ...], int
        ] = {}  # by needs: the nodes before it have no room for them

    def take(self, needs: Mapping[str, float]) -> bool:
        """Reserve `needs` for one worker on a node. Return False, and reserve nothing, if no node has room.

        `needs` is Ray's resource name -> amount.
        """
        key = tuple(sorted(needs.items()))
        for place in range(self._first.get(key, 0), len(self._free)):
            free, gpus = self._free[place], self._gpus[place]
            fits = all(free.get(name, 0) + TINY >= amount for name, amount in needs.items())
            devices = _devices(gpus, needs.get("GPU", 0))
            if fits and devices is not None:
                for name, amount in needs.items():
                    free[name] -= amount
                for device in devices:
                    gpus[device] -= min(needs["GPU"], 1.0)
                self._first[key] = place
                return True
        self._first[key] = len(self._free)
        return False

    def take_all(self, workers: Sequence[Mapping[str, float]]) -> bool:
        """Reserve resources for `workers`, the most demanding first. Return False at the first that finds no room.

        Each worker is Ray's resource name -> amount. If the result is False, the reservations so far stay.
        """
        return all(self.take(needs) for needs in sorted(workers, key=_demand, reverse=True))


def _demand(needs: Mapping[str, float]) -> tuple[float, int, int, float]:
    """Return the sort key of a worker: what few nodes have comes before CPUs and memory."""
    rare = len(needs.keys() - {"CPU", "memory"})
    return needs.get("GPU", 0), rare, len(needs), needs.get("CPU", 0)


def _devices(free: list[float], amount: float) -> list[int] | None:
    """Return the numbers of the GPUs that a worker gets, or None if there are not enough."""
    count = round(amount) if amount >= 1 else int(amount > 0)
    devices = [place for place, left in enumerate(free) if left + TINY >= min(amount, 1.0)][:count]
    return devices if len(devices) == count else None
