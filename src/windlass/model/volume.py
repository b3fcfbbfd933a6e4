"""Volumes as far as they tie a pod to nodes: persistent volumes, claims and storage classes.

Decoded from watch events, dumps and manifests; `placement.filters` reads them through `cluster.listers`.
"""

from __future__ import annotations

import msgspec

from windlass.model.meta import KubeStruct, LabelSelector, ObjectMeta
from windlass.model.pod import NodeSelector, RawQuantity, ResourceRequirements


class VolumeNodeAffinity(KubeStruct, frozen=True):
    required: NodeSelector | None = None


class ObjectReference(KubeStruct, frozen=True):
    """The claim that a volume is bound to, or kept for."""

    namespace: str = ""
    name: str = ""
    uid: str = ""


class CsiVolume(KubeStruct, frozen=True):
    """The volume as its CSI driver knows it."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(KubeStruct, frozen=True):
    capacity: dict[str, RawQuantity] = msgspec.field(default_factory=dict)
    node_affinity: VolumeNodeAffinity | None = None
    access_modes: tuple[str, ...] = ()
    storage_class_name: str = ""
    claim_ref: ObjectReference | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""
    csi: CsiVolume | None = None


class PersistentVolumeStatus(KubeStruct, frozen=True):
    phase: str = ""


class PersistentVolume(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeSpec = PersistentVolumeSpec()
    status: PersistentVolumeStatus = PersistentVolumeStatus()


class PersistentVolumeClaimSpec(KubeStruct, frozen=True):
    volume_name: str = ""
    storage_class_name: str | None = None
    """None asks for the default class, the empty string for no class at all."""
    access_modes: tuple[str, ...] = ()
    resources: ResourceRequirements = ResourceRequirements()
    selector: LabelSelector | None = None
    volume_mode: str = "Filesystem"
    volume_attributes_class_name: str = ""


class PersistentVolumeClaimStatus(KubeStruct, frozen=True):
    phase: str = ""


class PersistentVolumeClaim(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class TopologySelectorLabelRequirement(KubeStruct, frozen=True):
    key: str
    values: tuple[str, ...] = ()


class TopologySelectorTerm(KubeStruct, frozen=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class StorageClass(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    provisioner: str = ""
    volume_binding_mode: str = "Immediate"
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class VolumeLimit(KubeStruct, frozen=True):
    """How many volumes of a driver can be attached to a node; None: as many as one likes."""

    count: int | None = None


class CsiNodeDriver(KubeStruct, frozen=True):
    name: str = ""
    allocatable: VolumeLimit | None = None


class CsiNodeSpec(KubeStruct, frozen=True):
    drivers: tuple[CsiNodeDriver, ...] = ()


class CSINode(KubeStruct, frozen=True):
    """The CSI drivers of the node of the same name."""

    metadata: ObjectMeta = ObjectMeta()
    spec: CsiNodeSpec = CsiNodeSpec()


class AttachedVolume(KubeStruct, frozen=True):
    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(KubeStruct, frozen=True):
    attacher: str = ""
    node_name: str = ""
    source: AttachedVolume = AttachedVolume()


class VolumeAttachment(KubeStruct, frozen=True):
    """A volume that is attached to a node, or is to be, whichever pods use it."""

    metadata: ObjectMeta = ObjectMeta()
    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class Namespace(KubeStruct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
