"""How many volumes each node has attached, by CSI driver, and where a pod's volumes would be too many.

Kept in step by `InterPodRules`; asked by it for every pod with claims. A volume counts once however many pods use it,
and also where the cluster says that it is attached although no pod there uses it (any more). Volumes of kinds from
before CSI are not counted.
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
"""A volume by driver and handle; one that doesn't exist yet by its claim's name."""


class VolumeLimits:
    def __init__(self, facts: NodeColumns, objects: Listers) -> None:
        self._facts, self._objects = facts, objects
        self._limits = dict(_limits(facts, objects))
        self._used: dict[int, Counter[AttachableVolume]] = {row: Counter() for row in self._limits}
        self._attached: dict[int, set[AttachableVolume]] = {row: set() for row in self._limits}
        for row, volume in self._attachments():
            self._attached[row].add(volume)

    def change(self, pod: Pod, row: int, by: int) -> None:
        """Nodes without limits are not looked at: most clusters have none."""
        used = self._used.get(row)
        if used is None:
            return
        for volume in self._volumes(pod):
            used[volume] += by
            if not used[volume]:
                del used[volume]

    def refused_nodes(self, pod: Pod) -> Bools | None:
        """Nodes that would have more volumes of a driver than they can; None if there are none."""
        if not self._limits or not pod.spec.volumes:
            return None
        wanted = self._volumes(pod)
        full = [row for row, limits in self._limits.items() if self._is_too_much(row, limits, wanted)]
        if not full:
            return None
        mask = np.zeros(self._facts.size, dtype=np.bool_)
        mask[full] = True
        return mask

    def _is_too_much(self, row: int, limits: dict[str, int], wanted: set[AttachableVolume]) -> bool:
        used = self._used[row]
        new = Counter(driver for driver, handle in wanted if (driver, handle) not in used)
        for driver in new.keys() & limits.keys():
            there = {volume for volume in (*used, *self._attached[row]) if volume[0] == driver}
            if len(there) + new[driver] > limits[driver]:
                return True
        return False

    def _volumes(self, pod: Pod) -> set[AttachableVolume]:
        """What has to be attached for the pod, as far as CSI drivers do it."""
        claims = (named.claim for named in volume_claims_of(pod, self._objects))
        found = (self._volume_of(claim) for claim in claims if claim is not None)
        return {volume for volume in found if volume is not None}

    def _volume_of(self, claim: PersistentVolumeClaim) -> AttachableVolume | None:
        volume = self._objects.volumes.get(claim.spec.volume_name)
        if volume is not None:
            source = volume.spec.csi
            return (source.driver, source.volume_handle) if source and source.volume_handle else None
        storage_class = self._objects.storage_classes.get(storage_class_of_claim(claim, self._objects))
        if storage_class is None or not storage_class.provisioner:
            return None
        return storage_class.provisioner, f"{claim.metadata.namespace or 'default'}/{claim.metadata.name}"

    def _attachments(self) -> Iterator[tuple[int, AttachableVolume]]:
        """What the cluster says is attached, on nodes that have limits."""
        for attachment in self._objects.attachments.values():
            spec = attachment.spec
            row = self._facts.index.get(spec.node_name, -1)
            volume = self._objects.volumes.get(spec.source.persistent_volume_name or "")
            if row in self._limits and spec.attacher and volume is not None and volume.spec.csi is not None:
                yield row, (spec.attacher, volume.spec.csi.volume_handle)


def _limits(facts: NodeColumns, objects: Listers) -> Iterator[tuple[int, dict[str, int]]]:
    """Node row → driver → how many volumes, for the nodes that have limits."""
    for name, node in objects.csi_nodes.items():
        limits = {
            driver.name: driver.allocatable.count
            for driver in node.spec.drivers
            if driver.allocatable is not None and driver.allocatable.count is not None
        }
        if limits and name in facts.index:
            yield facts.index[name], limits
