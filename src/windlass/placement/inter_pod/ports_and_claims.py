"""What only one pod can hold: a host port of a node, a ReadWriteOncePod claim in the whole cluster.

`InterPodRules` updates both with every placed or removed pod, and asks which nodes they close to a pod.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Container, Pod
from windlass.placement.inter_pod.pod_matchers import namespace_of

HostPort = tuple[str, int]
"""Protocol and number."""

_ANY_ADDRESS = "0.0.0.0"
_READ_WRITE_ONCE_POD = "ReadWriteOncePod"


def host_ports(pod: Pod) -> tuple[tuple[HostPort, str], ...]:
    """The host ports that a running pod holds, each with its address."""
    spec = pod.spec
    # Of the init containers only sidecars (restartPolicy Always) keep running.
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    running = (*sidecars, *spec.containers)
    return tuple(port for container in running if container.ports for port in _ports(container, spec.host_network))


def _ports(container: Container, host_network: bool) -> list[tuple[HostPort, str]]:
    found = []
    for port in container.ports:
        # With hostNetwork a container port is a host port; the API server defaults hostPort accordingly.
        number = port.host_port or (port.container_port if host_network else 0)
        if number > 0:
            found.append(((port.protocol or "TCP", number), port.host_ip or _ANY_ADDRESS))
    return found


def claim_names(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of the claims that the pod names; claims of ephemeral volumes are never shared."""
    namespace = namespace_of(pod)
    return tuple(
        f"{namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim
    )


def has_claims(pod: Pod) -> bool:
    """Whether the pod has volumes by claim, those of ephemeral volumes included."""
    return any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes)


class HostPorts:
    """Host ports in use: for each port and address, the node rows and how many pods hold it there."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._rows: dict[HostPort, dict[str, Counter[int]]] = {}

    def change(self, pod: Pod, row: int, by: int) -> None:
        for port, address in host_ports(pod):
            holders = self._rows.setdefault(port, {}).setdefault(address, Counter())
            holders[row] += by
            if not holders[row]:
                del holders[row]

    def conflicting_nodes(self, pod: Pod) -> Bools | None:
        """Nodes where another pod holds a port that the pod asks for; None if it asks for none."""
        wanted = host_ports(pod)
        if not wanted:
            return None
        mask = np.zeros(self._nodes.size, dtype=np.bool_)
        for port, address in wanted:
            for held, rows in self._rows.get(port, {}).items():
                # Two addresses conflict if they are equal or one of them is the wildcard.
                if held == address or _ANY_ADDRESS in (held, address):
                    mask[np.fromiter(rows, dtype=np.int64, count=len(rows))] = True
        return mask


class ClaimsInUse:
    """How many placed pods use each claim."""

    def __init__(self, listers: Listers) -> None:
        self._listers = listers
        self._users: Counter[str] = Counter()

    def change(self, pod: Pod, by: int) -> None:
        for name in claim_names(pod):
            self._users[name] += by
            if not self._users[name]:
                del self._users[name]

    def excludes(self, pod: Pod) -> bool:
        """Whether the pod needs a ReadWriteOncePod claim that a placed pod uses, on any node."""
        return any(name in self._users and self._is_exclusive(name) for name in claim_names(pod))

    def _is_exclusive(self, name: str) -> bool:
        claim = self._listers.claims.get(name)
        return claim is not None and _READ_WRITE_ONCE_POD in claim.spec.access_modes
