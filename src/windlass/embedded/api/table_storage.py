"""The rows of storage kinds in a Table, cells in the order of the columns in `tables`.

Called with an object and the time. The content follows kubectl's printers.
"""

from __future__ import annotations

from typing import Any

from windlass.embedded.api.json_trees import nested_value
from windlass.embedded.api.table_rows import NONE, Cells, age_of, name_of
from windlass.model.names.kubernetes import DEFAULT_STORAGE_CLASS_ANNOTATION
from windlass.model.unstructured import Unstructured

_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _modes(modes: Any) -> str:
    given = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _phase(obj: Unstructured) -> str:
    deletion_timestamp = obj["metadata"].get("deletionTimestamp")
    return "Terminating" if deletion_timestamp else str(nested_value(obj, "status", "phase") or "")


def volume(obj: Unstructured, now: float) -> Cells:
    spec, claim = obj["spec"], obj["spec"].get("claimRef")
    return [
        name_of(obj),
        nested_value(spec, "capacity", "storage") or "0",
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        nested_value(obj, "status", "reason") or "",
        age_of(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def claim(obj: Unstructured, now: float) -> Cells:
    spec, status = obj["spec"], obj.get("status") or {}
    bound = bool(spec.get("volumeName"))
    return [
        name_of(obj),
        _phase(obj),
        spec.get("volumeName", ""),
        (nested_value(status, "capacity", "storage") or "0") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or "<unset>",
        age_of(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def storage_class(obj: Unstructured, now: float) -> Cells:
    default = nested_value(obj, "metadata", "annotations", DEFAULT_STORAGE_CLASS_ANNOTATION) == "true"
    return [
        name_of(obj) + (" (default)" if default else ""),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        age_of(obj, now),
    ]


def volume_attachment(obj: Unstructured, now: float) -> Cells:
    spec = obj["spec"]
    return [
        name_of(obj),
        spec.get("attacher", ""),
        nested_value(spec, "source", "persistentVolumeName") or "",
        spec.get("nodeName", ""),
        bool(nested_value(obj, "status", "attached")),
        age_of(obj, now),
    ]


def csi_node(obj: Unstructured, now: float) -> Cells:
    return [name_of(obj), len(nested_value(obj, "spec", "drivers") or ()), age_of(obj, now)]


def csi_driver(obj: Unstructured, now: float) -> Cells:
    spec = obj["spec"]
    tokens = spec.get("tokenRequests")
    return [
        name_of(obj),
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        "<unset>" if tokens is None else ",".join(request.get("audience", "") for request in tokens),
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or NONE,
        age_of(obj, now),
    ]
