"""Zone and region labels of a bound volume: the node has to be in one of its zones. Called by `static_reasons`.

Volumes from before CSI have such labels; newer ones have node affinity (`volume_binding`).
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.names.kubernetes import BETA_REGION_LABEL, BETA_ZONE_LABEL, REGION_LABEL, ZONE_LABEL
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolume
from windlass.placement.filters.volume_claims import bound_volumes

_SUCCESSOR = {
    BETA_ZONE_LABEL: ZONE_LABEL,
    BETA_REGION_LABEL: REGION_LABEL,
}
_KEYS = (*_SUCCESSOR, *_SUCCESSOR.values())
_ZONE_SEPARATOR = "__"


def refused_by_volume_zone(pod: Pod, nodes: NodeColumns, listers: Listers) -> Bools | None:
    """Nodes outside a volume's zones. As in kube-scheduler, a node without any zone or region label is not refused: its
    cluster is taken to have one zone."""
    if not pod.spec.volumes:
        return None
    wanted = [key_and_zones for volume in bound_volumes(pod, listers) for key_and_zones in _zones(volume)]
    if not wanted:
        return None
    has_zone = np.zeros(nodes.size, dtype=np.bool_)
    for key in _KEYS:
        has_zone |= nodes.label(key).present
    inside = np.ones(nodes.size, dtype=np.bool_)
    for key, zones in wanted:
        column, successor = nodes.label(key), nodes.label(_SUCCESSOR.get(key, key))
        inside &= column.satisfying("In", zones) | (~column.present & successor.satisfying("In", zones))
    return has_zone & ~inside


def _zones(volume: PersistentVolume) -> list[tuple[str, list[str]]]:
    """Label key and allowed values."""
    found = []
    for key in _KEYS:
        if key in volume.metadata.labels:
            zones = [zone.strip() for zone in volume.metadata.labels[key].split(_ZONE_SEPARATOR)]
            if all(zones):  # as in kube-scheduler, a list with an empty entry is ignored as a whole
                found.append((key, zones))
    return found
