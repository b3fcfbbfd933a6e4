"""The objects beside pods and nodes that decide where a pod may go.

Filled by the store (from watch events, dumps and manifests); read by the volume filters and by whatever
selects namespaces by their labels.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from windlass.model.volume import Namespace, PersistentVolume, PersistentVolumeClaim, StorageClass

NAMESPACE_NAME_LABEL = "kubernetes.io/metadata.name"


class ClusterObjects(msgspec.Struct, frozen=True):
    """Volumes, storage classes and namespaces by name, claims by `namespace/name`."""

    volumes: Mapping[str, PersistentVolume] = {}
    claims: Mapping[str, PersistentVolumeClaim] = {}
    storage_classes: Mapping[str, StorageClass] = {}
    namespaces: Mapping[str, Namespace] = {}

    def namespace_labels(self, name: str) -> dict[str, str]:
        """A namespace's labels. The API server gives every namespace its own name as a label, so a dump
        without Namespace objects still knows that one."""
        found = self.namespaces.get(name)
        return {**(found.metadata.labels if found else {}), NAMESPACE_NAME_LABEL: name}
