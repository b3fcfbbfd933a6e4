"""What only one pod can have: a host port of a node, a ReadWriteOncePod claim of the cluster.

Kept in step by `InterPodRules`; asked by it for every pod that wants such a thing.
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
_ONE_POD = "ReadWriteOncePod"


def host_ports(pod: Pod) -> tuple[tuple[HostPort, str], ...]:
    """The host ports a running pod holds, each with its address; init containers count only if they keep
    running."""
    spec = pod.spec
    running = (*(c for c in spec.init_containers if c.restart_policy == "Always"), *spec.containers)
    return tuple(
        port for container in running if container.ports for port in _ports(container, spec.host_network)
    )


def _ports(container: Container, host_network: bool) -> list[tuple[HostPort, str]]:
    found = []
    for port in container.ports:
        # On the host's network a container port is a host port; the API server writes that down on admission.
        number = port.host_port or (port.container_port if host_network else 0)
        if number > 0:
            found.append(((port.protocol or "TCP", number), port.host_ip or _ANY_ADDRESS))
    return found


def claim_names(pod: Pod) -> tuple[str, ...]:
    """`namespace/name` of the claims that the pod names itself. Ephemeral ones are its own and never
    shared."""
    namespace = namespace_of(pod)
    return tuple(
        f"{namespace}/{volume.persistent_volume_claim.claim_name}"
        for volume in pod.spec.volumes
        if volume.persistent_volume_claim
    )


def has_claims(pod: Pod) -> bool:
    """Whether the pod wants volumes by claim, of its own ones too."""
    return any(volume.persistent_volume_claim or volume.ephemeral for volume in pod.spec.volumes)


class HostPorts:
    """Host ports in use: for each port and address, the node rows and how many pods hold it there."""

    def __init__(self, facts: NodeColumns) -> None:
        self._facts = facts
        self._rows: dict[HostPort, dict[str, Counter[int]]] = {}

    def change(self, pod: Pod, row: int, by: int) -> None:
        for port, address in host_ports(pod):
            holders = self._rows.setdefault(port, {}).setdefault(address, Counter())
            holders[row] += by
            if not holders[row]:
                del holders[row]

    def conflicting_nodes(self, pod: Pod) -> Bools | None:
        """Nodes where a port that the pod wants is held; None if it wants none."""
        wanted = host_ports(pod)
        if not wanted:
            return None
        mask = np.zeros(self._facts.size, dtype=np.bool_)
        for port, address in wanted:
            for held, rows in self._rows.get(port, {}).items():
                # Two addresses get along unless they are the same or one of them means all.
                if held == address or _ANY_ADDRESS in (held, address):
                    mask[np.fromiter(rows, dtype=np.int64, count=len(rows))] = True
        return mask


class ClaimsInUse:
    """How many placed pods use each claim."""

    def __init__(self, objects: Listers) -> None:
        self._objects = objects
        self._users: Counter[str] = Counter()

    def change(self, pod: Pod, by: int) -> None:
        for name in claim_names(pod):
            self._users[name] += by
            if not self._users[name]:
                del self._users[name]

    def excludes(self, pod: Pod) -> bool:
        """Whether the pod wants a ReadWriteOncePod claim that another pod already uses, wherever that pod
        is."""
        return any(name in self._users and self._is_exclusive(name) for name in claim_names(pod))

    def _is_exclusive(self, name: str) -> bool:
        claim = self._objects.claims.get(name)
        return claim is not None and _ONE_POD in claim.spec.access_modes
