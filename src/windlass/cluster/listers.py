"""The objects beside pods and nodes that decide where a pod may go.

Filled by the store (from watch events, dumps and manifests); read by the volume filters and by whatever
selects namespaces by their labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.volume import (
    CSINode,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


class Listers(msgspec.Struct, frozen=True):
    """Claims by `namespace/name`, everything else by name (CSI drivers by their node's)."""

    volumes: Mapping[str, PersistentVolume] = {}
    claims: Mapping[str, PersistentVolumeClaim] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    namespaces: Mapping[str, Namespace] = {}
    csi_nodes: Mapping[str, CSINode] = {}
    attachments: Mapping[str, VolumeAttachment] = {}

    def namespace_labels(self, name: str) -> dict[str, str]:
        """A namespace's labels. The API server gives every namespace its own name as a label, so a dump
        without Namespace objects still knows that one."""
        found = self.namespaces.get(name)
        return {**(found.metadata.labels if found else {}), NAMESPACE_NAME_LABEL: name}
