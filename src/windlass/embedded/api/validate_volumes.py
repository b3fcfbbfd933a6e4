"""Validation of volumes, claims, storage classes, CSI nodes and volume attachments.

Called by `validation` with decoded, defaulted objects. Messages are the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import (
    FieldError,
    duplicate,
    forbidden_field,
    invalid,
    required,
    unsupported,
)
from windlass.embedded.api.field_checks import (
    choice_errors,
    optional_choice_errors,
    problem_errors,
    required_errors,
)
from windlass.embedded.api.names import dns_subdomain_problems, label_key_problems
from windlass.embedded.api.quantities import quantity_value
from windlass.embedded.api.validate_scheduling import node_term_errors
from windlass.model.unstructured import Unstructured

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")


def claim_errors(obj: Unstructured) -> Iterator[FieldError]:
    return claim_spec_errors(obj["spec"], "spec")


def claim_spec_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    """Also for the claim templates of a StatefulSet."""
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _MODES:
            yield unsupported(f"{path}.accessModes", mode, _MODES)
    requested = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if requested is None:
        yield required(f"{path}.resources[storage]")
    elif quantity_value(requested) <= 0:
        yield invalid(f"{path}.resources[storage]", requested, "must be greater than zero")
    yield from _storage_errors(spec, path)


def _storage_errors(spec: Unstructured, path: str) -> Iterator[FieldError]:
    if spec.get("storageClassName"):
        yield from problem_errors(f"{path}.storageClassName", spec["storageClassName"], dns_subdomain_problems)
    yield from optional_choice_errors(spec, "volumeMode", path, ("Block", "Filesystem"))


_VOLUME_FIELDS = {
    *("accessModes", "capacity", "claimRef", "mountOptions", "nodeAffinity", "persistentVolumeReclaimPolicy"),
    *("storageClassName", "volumeAttributesClassName", "volumeMode"),
}
_RECLAIM = ("Delete", "Recycle", "Retain")
_REQUIRED_FIELDS = {
    "hostPath": ("path",),
    "local": ("path",),
    "nfs": ("server", "path"),
    "csi": ("driver", "volumeHandle"),
}


def volume_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from required_errors(spec, "spec", "accessModes")
    for mode in spec.get("accessModes") or ():
        if mode not in _MODES:
            yield unsupported("spec.accessModes", mode, _MODES)
    capacity = spec.get("capacity")
    if not capacity:
        yield required("spec.capacity")
    if set(capacity or ()) != {"storage"}:
        yield unsupported("spec.capacity", capacity, ("storage",))
    yield from choice_errors(spec, "persistentVolumeReclaimPolicy", "spec", _RECLAIM)
    if spec.get("nodeAffinity") is not None:
        yield from _volume_affinity_errors(spec["nodeAffinity"], "spec.nodeAffinity.required")
    yield from _volume_source_errors(spec)
    yield from _storage_errors(spec, "spec")


def _volume_source_errors(spec: Unstructured) -> Iterator[FieldError]:
    sources = [name for name in spec if name not in _VOLUME_FIELDS]
    if not sources:
        yield required("spec", "must specify a volume type")
    for extra in sources[1:]:
        yield forbidden_field(f"spec.{extra}", "may not specify more than 1 volume type")
    for name in sources[:1]:
        yield from required_errors(spec[name], f"spec.{name}", *_REQUIRED_FIELDS.get(name, ()))
        if name == "nfs" and not spec[name].get("path", "").startswith("/"):
            yield invalid("spec.nfs.path", spec[name].get("path", ""), "must be an absolute path")
        if name == "local" and spec.get("nodeAffinity") is None:
            yield required("spec.nodeAffinity", "Local volume requires node affinity")


def _volume_affinity_errors(affinity: Unstructured, path: str) -> Iterator[FieldError]:
    required_terms = affinity.get("required")
    if required_terms is None:
        yield required(path, "must specify required node constraints")
        return
    if not required_terms.get("nodeSelectorTerms"):
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
    for index, term in enumerate(required_terms.get("nodeSelectorTerms") or ()):
        yield from node_term_errors(term, f"{path}.nodeSelectorTerms[{index}]")


def csi_node_errors(obj: Unstructured) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, driver in enumerate(obj["spec"].get("drivers") or ()):
        path = f"spec.drivers[{index}]"
        yield from required_errors(driver, path, "name", "nodeID")
        if driver.get("name") in seen:
            yield duplicate(f"{path}.name", driver["name"])
        seen.add(driver.get("name") or str(index))


def volume_attachment_errors(obj: Unstructured) -> Iterator[FieldError]:
    spec = obj["spec"]
    yield from required_errors(spec, "spec", "attacher")
    source = spec.get("source") or {}
    if (source.get("persistentVolumeName") is None) == (source.get("inlineVolumeSpec") is None):
        yield required("spec.source", "must specify exactly one of inlineVolumeSpec and persistentVolumeName")
    yield from problem_errors("spec.nodeName", spec.get("nodeName", ""), dns_subdomain_problems)


def storage_class_errors(obj: Unstructured) -> Iterator[FieldError]:
    if not obj.get("provisioner"):
        yield required("provisioner")
    else:
        for problem in label_key_problems(obj["provisioner"].lower()):
            yield invalid("provisioner", obj["provisioner"], problem)
    yield from choice_errors(obj, "reclaimPolicy", "", ("Delete", "Retain"))
    yield from choice_errors(obj, "volumeBindingMode", "", ("Immediate", "WaitForFirstConsumer"))
