"""Zone and region labels of a bound volume: the node has to be in one of its zones.

The older way of tying a volume to nodes; newer volumes have node affinity and are dealt with in `volumes`.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume
from windlass.placement.filters.volume_claims import bound_volumes

_SUCCESSOR = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
_KEYS = (*_SUCCESSOR, *_SUCCESSOR.values())
_BETWEEN_ZONES = "__"


def refused_by_volume_zone(pod: Pod, facts: NodeColumns, objects: Listers) -> Bools | None:
    """Nodes outside a volume's zones. A node without any zone or region label is refused by none: it is taken
    to be in a cluster of one zone."""
    if not pod.spec.volumes:
        return None
    wanted = [need for volume in bound_volumes(pod, objects) for need in _needs(volume)]
    if not wanted:
        return None
    placed = np.zeros(facts.size, dtype=np.bool_)
    for key in _KEYS:
        placed |= facts.label(key).present
    inside = np.ones(facts.size, dtype=np.bool_)
    for key, zones in wanted:
        column, successor = facts.label(key), facts.label(_SUCCESSOR.get(key, key))
        inside &= column.satisfying("In", zones) | (~column.present & successor.satisfying("In", zones))
    return placed & ~inside


def _needs(volume: PersistentVolume) -> list[tuple[str, list[str]]]:
    needs = []
    for key in _KEYS:
        if key in volume.metadata.labels:
            zones = [zone.strip() for zone in volume.metadata.labels[key].split(_BETWEEN_ZONES)]
            if all(zones):  # a list with a gap in it is ignored as a whole, as kube-scheduler has it
                needs.append((key, zones))
    return needs
