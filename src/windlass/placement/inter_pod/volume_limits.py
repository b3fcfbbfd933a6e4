"""How many volumes each node has attached, by CSI driver, and where a pod's volumes would exceed the limit.

`InterPodRules` updates it with every placed or removed pod, and asks for pods with volumes. A volume counts once
however many pods use it, and also where a VolumeAttachment exists although no pod on the node uses the volume.
In-tree (pre-CSI) volumes are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from windlass.cluster.listers import Listers
from windlass.cluster.node_columns import Bools, NodeColumns
from windlass.model.pod import Pod
from windlass.model.volume import PersistentVolumeClaim
from windlass.placement.filters.volume_claims import storage_class_of_claim, volume_claims_of

AttachableVolume = tuple[str, str]
"""CSI driver, and volume handle; for a volume that is not provisioned yet, the key of its claim."""


class VolumeLimits:
    def __init__(self, nodes: NodeColumns, listers: Listers) -> None:
        self._nodes, self._listers = nodes, listers
        self._limits = dict(_limits(nodes, listers))
        self._used: dict[int, Counter[AttachableVolume]] = {row: Counter() for row in self._limits}
        self._attached: dict[int, set[AttachableVolume]] = {row: set() for row in self._limits}
        for row, volume in self._attachments():
            self._attached[row].add(volume)

    def change(self, pod: Pod, row: int, by: int) -> None:
        used = self._used.get(row)
        if used is None:
            return  # the node has no limits, as in most clusters
        for volume in self._volumes(pod):
            used[volume] += by
            if not used[volume]:
                del used[volume]

    def refused_nodes(self, pod: Pod) -> Bools | None:
        """Nodes where the pod's volumes would exceed the limit of a driver; None if there are none."""
        if not self._limits or not pod.spec.volumes:
            return None
        wanted = self._volumes(pod)
        full = [row for row, limits in self._limits.items() if self._exceeds_limit(row, limits, wanted)]
        if not full:
            return None
        mask = np.zeros(self._nodes.size, dtype=np.bool_)
        mask[full] = True
        return mask

    def _exceeds_limit(self, row: int, limits: dict[str, int], wanted: set[AttachableVolume]) -> bool:
        used = self._used[row]
        # A volume that is attached here but used by no pod counts as new all the same, as in kube-scheduler.
        new = Counter(driver for driver, handle in wanted if (driver, handle) not in used)
        for driver in new.keys() & limits.keys():
            attached = {volume for volume in (*used, *self._attached[row]) if volume[0] == driver}
            if len(attached) + new[driver] > limits[driver]:
                return True
        return False

    def _volumes(self, pod: Pod) -> set[AttachableVolume]:
        """The pod's CSI volumes."""
        claims = (named.claim for named in volume_claims_of(pod, self._listers))
        found = (self._volume_of(claim) for claim in claims if claim is not None)
        return {volume for volume in found if volume is not None}

    def _volume_of(self, claim: PersistentVolumeClaim) -> AttachableVolume | None:
        volume = self._listers.volumes.get(claim.spec.volume_name)
        if volume is not None:
            source = volume.spec.csi
            return (source.driver, source.volume_handle) if source and source.volume_handle else None
        storage_class = self._listers.storage_classes.get(storage_class_of_claim(claim, self._listers))
        if storage_class is None or not storage_class.provisioner:
            return None
        return storage_class.provisioner, f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}"

    def _attachments(self) -> Iterator[tuple[int, AttachableVolume]]:
        """VolumeAttachments on nodes that have limits."""
        for attachment in self._listers.attachments.values():
            spec = attachment.spec
            row = self._nodes.index.get(spec.node_name, -1)
            volume = self._listers.volumes.get(spec.source.persistent_volume_name or "")
            if row in self._limits and spec.attacher and volume is not None and volume.spec.csi is not None:
                yield row, (spec.attacher, volume.spec.csi.volume_handle)


def _limits(nodes: NodeColumns, listers: Listers) -> Iterator[tuple[int, dict[str, int]]]:
    """Node row and, by driver, the most volumes, from CSINode objects that declare limits."""
    for name, node in listers.csi_nodes.items():
        limits = {
            driver.name: driver.allocatable.count
            for driver in node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if limits and name in nodes.index:
            yield nodes.index[name], limits
