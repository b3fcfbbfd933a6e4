"""Volumes as far as they tie a pod to nodes: persistent volumes, claims and storage classes."""

from __future__ import annotations

from windlass.model.meta import KubeStruct, ObjectMeta
from windlass.model.pod import NodeSelector


class VolumeNodeAffinity(KubeStruct, frozen=True):
    required: NodeSelector | None = None


class PersistentVolumeSpec(KubeStruct, frozen=True):
    node_affinity: VolumeNodeAffinity | None = None
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""


class PersistentVolume(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class PersistentVolumeClaimSpec(KubeStruct, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaimStatus(KubeStruct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class StorageClass(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"


class Namespace(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
