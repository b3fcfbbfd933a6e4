"""The objects besides pods and nodes that decide where a pod may go.

Filled by `auxiliary_objects`; read by the volume filters and by inter-pod affinity, which selects namespaces by label.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.names.kubernetes import NAMESPACE_NAME_LABEL
from windlass.model.volume import (
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)


class Listers(msgspec.Struct, frozen=True):
    """Claims by `namespace/name`, everything else by name (a CSINode has the name of its node)."""

    volumes: Mapping[str, PersistentVolume] = {}
    claims: Mapping[str, PersistentVolumeClaim] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    namespaces: Mapping[str, Namespace] = {}
    csi_nodes: Mapping[str, CSINode] = {}
    attachments: Mapping[str, VolumeAttachment] = {}

    def namespace_labels(self, name: str) -> dict[str, str]:
        """A namespace's labels, with the name label that the API server sets even where the object is unknown."""
        found = self.namespaces.get(name)
        return {**(found.metadata.labels if found else {}), NAMESPACE_NAME_LABEL: name}
