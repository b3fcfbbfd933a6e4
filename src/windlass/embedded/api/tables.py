"""Tables: the response of `kubectl get`, with kubectl's columns, including those of `-o wide`.

`machinery` passes stored objects and the time. A custom kind has its own columns (`custom_kind`). Columns of
priority 1 are for `-o wide`; the client filters them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from windlass.embedded.api import table_rows as rows
from windlass.embedded.api import table_storage as storage
from windlass.embedded.api.kinds import Kind
from windlass.embedded.api.table_pod import pod_cells, pod_conditions
from windlass.model.names.kubernetes import META_API_VERSION
from windlass.model.unstructured import Unstructured

Cells = Callable[[Unstructured, float], list[Any]]


class Column(msgspec.Struct, frozen=True):
    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Unstructured:
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description or _DESCRIPTIONS.get(self.name, ""),
            "priority": self.priority,
        }


class Columns(msgspec.Struct, frozen=True):
    """The columns of a kind, and the function that fills a row."""

    columns: tuple[Column, ...]
    cells: Cells


_DESCRIPTIONS = {
    "Name": "The object's name, unique among its kind in its namespace.",
    "Age": "How long ago the object was created.",
    "Created At": "When the object was created.",
    "Ready": "How many are ready, of how many.",
    "Status": "Its state in one word.",
    "Restarts": "How often its containers were restarted, and when last.",
    "Node": "The node that it runs on.",
    "IP": "Its address.",
    "Containers": "Names of the containers in the template.",
    "Images": "Images of the containers in the template.",
    "Selector": "Which pods belong to it.",
    "Completions": "How many pods have succeeded, of how many.",
    "Duration": "How long it ran, or has been running.",
    "Roles": "What the node is for.",
    "Version": "The kubelet's version.",
    "Value": "The priority of pods of this class.",
}


def _columns(text: str) -> tuple[Column, ...]:
    """Parses `Name|Ready|IP+|Count#`: a plus for `-o wide`, a hash for numbers, an exclamation mark for booleans."""
    columns = []
    for part in text.split("|"):
        kind = "integer" if "#" in part else "boolean" if "!" in part else "string"
        name = part.rstrip("+#!")
        columns.append(Column(name, kind, "name" if name == "Name" else "", int("+" in part)))
    return tuple(columns)


def _table(text: str, cells: Cells) -> Columns:
    return Columns(_columns(text), cells)


_TEMPLATE = "Containers+|Images+|Selector+"
_STORAGE = "storage.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_BINDING = _table("Name|Role|Age|Users+|Groups+|ServiceAccounts+", rows.role_binding)
_EVENT = _table("Last Seen|Type|Reason|Object|Subobject+|Source+|Message|First Seen+|Count+|Name+", rows.event)
_PLAIN = Columns((Column("Name", "string", "name"), Column("Created At", "date")), rows.default_row)

_BUILT_IN: dict[tuple[str, str], Columns] = {
    ("", "Pod"): _table("Name|Ready|Status|Restarts|Age|IP+|Node+|Nominated Node+|Readiness Gates+", pod_cells),
    ("", "Node"): _table(
        "Name|Status|Roles|Age|Version|Internal-IP+|External-IP+|OS-Image+|Kernel-Version+|Container-Runtime+",
        rows.node,
    ),
    ("", "Event"): _EVENT,
    ("events.k8s.io", "Event"): _EVENT,
    ("", "Namespace"): _table("Name|Status|Age", rows.fields("status.phase")),
    ("", "Secret"): _table("Name|Type|Data|Age", rows.secret),
    ("", "ConfigMap"): _table("Name|Data|Age", rows.config_map),
    ("", "ServiceAccount"): _table("Name|Age", rows.fields()),
    ("", "Service"): _table("Name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector+", rows.service),
    ("", "Endpoints"): _table("Name|Endpoints|Age", rows.endpoints),
    ("", "PersistentVolume"): _table(
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age|"
        "VolumeMode+",
        storage.volume,
    ),
    ("", "PersistentVolumeClaim"): _table(
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|VolumeMode+",
        storage.claim,
    ),
    ("", "ReplicationController"): _table(
        f"Name|Desired#|Current#|Ready#|Age|{_TEMPLATE}", rows.replication_controller
    ),
    ("networking.k8s.io", "Ingress"): _table("Name|Class|Hosts|Address|Ports|Age", rows.ingress),
    ("networking.k8s.io", "NetworkPolicy"): _table("Name|Pod-Selector|Age", rows.network_policy),
    ("", "ResourceQuota"): _table("Name|Request|Limit|Age", rows.quota),
    ("apps", "Deployment"): _table(f"Name|Ready|Up-to-date|Available|Age|{_TEMPLATE}", rows.deployment),
    ("apps", "ReplicaSet"): _table(f"Name|Desired#|Current#|Ready#|Age|{_TEMPLATE}", rows.replica_set),
    ("apps", "StatefulSet"): _table("Name|Ready|Age|Containers+|Images+", rows.stateful_set),
    ("apps", "DaemonSet"): _table(
        f"Name|Desired#|Current#|Ready#|Up-to-date#|Available#|Node Selector|Age|{_TEMPLATE}", rows.daemon_set
    ),
    ("apps", "ControllerRevision"): _table("Name|Controller|Revision|Age", rows.controller_revision),
    ("batch", "Job"): _table(f"Name|Status|Completions|Duration|Age|{_TEMPLATE}", rows.job),
    ("batch", "CronJob"): _table(
        f"Name|Schedule|Timezone|Suspend!|Active#|Last Schedule|Age|{_TEMPLATE}", rows.cron_job
    ),
    ("policy", "PodDisruptionBudget"): _table(
        "Name|Min Available|Max Unavailable|Allowed Disruptions#|Age", rows.pod_disruption_budget
    ),
    ("scheduling.k8s.io", "PriorityClass"): _table(
        "Name|Value#|Global-Default!|Age|PreemptionPolicy", rows.priority_class
    ),
    ("autoscaling", "Scale"): _table("Name|Desired#|Available#|Age", rows.scale),
    ("coordination.k8s.io", "Lease"): _table("Name|Holder|Age", rows.fields("spec.holderIdentity")),
    ("node.k8s.io", "RuntimeClass"): _table("Name|Handler|Age", rows.fields("handler")),
    ("discovery.k8s.io", "EndpointSlice"): _table("Name|AddressType|Ports|Endpoints|Age", rows.endpoint_slice),
    (_STORAGE, "StorageClass"): _table(
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age", storage.storage_class
    ),
    (_STORAGE, "CSINode"): _table("Name|Drivers#|Age", storage.csi_node),
    (_STORAGE, "CSIDriver"): _table(
        "Name|AttachRequired!|PodInfoOnMount!|StorageCapacity!|TokenRequests|RequiresRepublish!|Modes|Age",
        storage.csi_driver,
    ),
    (_STORAGE, "VolumeAttachment"): Columns(
        (
            Column("Name", "string", "name"),
            Column("Attacher", "string", "name"),
            *_columns("PV|Node|Attached!|Age"),
        ),
        storage.volume_attachment,
    ),
    (_RBAC, "RoleBinding"): _BINDING,
    (_RBAC, "ClusterRoleBinding"): _BINDING,
}


def table(
    kind: Kind,
    objs: Sequence[Unstructured],
    now: float,
    columns: Columns | None = None,
    *,
    list_meta: Unstructured | None = None,
    include: str = "Metadata",
    headers: bool = True,
) -> Unstructured:
    """A `meta.k8s.io/v1` Table. `include`: what a row has besides its cells (None, Metadata or Object)."""
    chosen = columns or _BUILT_IN.get((kind.group, kind.kind), _PLAIN)
    row_conditions = pod_conditions if (kind.group, kind.kind) == ("", "Pod") else None
    table_rows = []
    for obj in objs:
        row: Unstructured = {"cells": chosen.cells(obj, now)}
        conditions = row_conditions(obj) if row_conditions is not None else None
        if conditions:
            row["conditions"] = conditions
        row["object"] = _included(obj, include)
        table_rows.append(row)
    return {
        "kind": "Table",
        "apiVersion": META_API_VERSION,
        "metadata": list_meta or {},
        "columnDefinitions": [column.definition() for column in chosen.columns] if headers else None,
        "rows": table_rows,
    }


def _included(obj: Unstructured, include: str) -> Unstructured | None:
    if include == "Object":
        return obj
    if include == "None":
        return None
    return {"kind": "PartialObjectMetadata", "apiVersion": META_API_VERSION, "metadata": obj["metadata"]}
