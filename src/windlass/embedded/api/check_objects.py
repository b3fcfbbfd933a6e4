"""Checks of volumes, classes and roles: objects that the embedded cluster keeps and that others read.

Fed by `api.validation` with decoded, defaulted trees. The wording is the Kubernetes API's (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.embedded.api.errors import FieldError, forbidden_field, invalid, required, unsupported
from windlass.embedded.api.names import dns_label_problems
from windlass.embedded.api.quantities import amount
from windlass.embedded.api.trees import Tree

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")

# ---- volumes


def claim_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in _MODES:
            yield unsupported("spec.accessModes", mode, _MODES)
    asked = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if asked is None:
        yield required("spec.resources[storage]")
    elif amount(asked) <= 0:
        yield invalid("spec.resources[storage]", asked, "must be greater than zero")


_VOLUME_FIELDS = {
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
}


def volume_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    if not spec.get("accessModes"):
        yield required("spec.accessModes")
    for mode in spec.get("accessModes") or ():
        if mode not in _MODES:
            yield unsupported("spec.accessModes", mode, _MODES)
    capacity = spec.get("capacity")
    if not capacity:
        yield required("spec.capacity")
    if set(capacity or ()) != {"storage"}:
        yield unsupported("spec.capacity", capacity, ("storage",))
    if not set(spec) - _VOLUME_FIELDS:
        yield required("spec", "must specify a volume type")


# ---- networks

_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def ingress_errors(obj: Tree) -> Iterator[FieldError]:
    spec = obj["spec"]
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        yield invalid("spec", spec, "either `defaultBackend` or `rules` must be specified")
    for index, rule in enumerate(spec.get("rules") or ()):
        where = f"spec.rules[{index}].http.paths"
        http = rule.get("http")
        if http is not None and not http.get("paths"):
            yield required(where)
        for number, path in enumerate((http or {}).get("paths") or ()):
            if not path.get("pathType"):
                yield required(f"{where}[{number}].pathType", "pathType must be specified")
            elif path["pathType"] not in _PATH_TYPES:
                yield unsupported(f"{where}[{number}].pathType", path["pathType"], _PATH_TYPES)


# ---- classes

_SYSTEM_CLASSES = ("system-node-critical", "system-cluster-critical")
HIGHEST_PRIORITY = 1_000_000_000


def priority_class_errors(obj: Tree) -> Iterator[FieldError]:
    name, value = obj["metadata"].get("name", ""), obj.get("value", 0)
    if name.startswith("system-"):
        if name not in _SYSTEM_CLASSES:
            yield forbidden_field(
                "metadata.name",
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class",
            )
    elif value > HIGHEST_PRIORITY:
        yield forbidden_field(
            "value", f"maximum allowed value of a user defined priority is {HIGHEST_PRIORITY}"
        )
    policy = obj.get("preemptionPolicy")
    if policy not in ("PreemptLowerPriority", "Never"):
        yield unsupported("preemptionPolicy", policy, ("PreemptLowerPriority", "Never"))


def runtime_class_errors(obj: Tree) -> Iterator[FieldError]:
    if not obj.get("handler"):
        yield required("handler")
    else:
        for problem in dns_label_problems(obj["handler"]):
            yield invalid("handler", obj["handler"], problem)


def storage_class_errors(obj: Tree) -> Iterator[FieldError]:
    if not obj.get("provisioner"):
        yield required("provisioner")
    for name, known in (
        ("reclaimPolicy", ("Delete", "Retain")),
        ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
    ):
        if obj.get(name) not in known:
            yield unsupported(name, obj.get(name), known)


# ---- roles


def role_errors(obj: Tree) -> Iterator[FieldError]:
    for index, rule in enumerate(obj.get("rules") or ()):
        path = f"rules[{index}]"
        if not rule.get("verbs"):
            yield required(f"{path}.verbs", "verbs must contain at least one value")
        if rule.get("nonResourceURLs"):
            continue
        if not rule.get("apiGroups"):
            yield required(f"{path}.apiGroups", "resource rules must supply at least one api group")
        if not rule.get("resources"):
            yield required(f"{path}.resources", "resource rules must supply at least one resource")


def binding_errors(obj: Tree) -> Iterator[FieldError]:
    role = obj["roleRef"]
    kinds = ("ClusterRole",) if obj["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
    if role.get("kind") not in kinds:
        yield unsupported("roleRef.kind", role.get("kind", ""), kinds)
    if not role.get("name"):
        yield required("roleRef.name")
    known = ("ServiceAccount", "User", "Group")
    everywhere = obj["kind"] == "ClusterRoleBinding"
    for index, subject in enumerate(obj.get("subjects") or ()):
        path = f"subjects[{index}]"
        if not subject.get("name"):
            yield required(f"{path}.name")
        if subject.get("kind") not in known:
            yield unsupported(f"{path}.kind", subject.get("kind", ""), known)
        elif everywhere and subject["kind"] == "ServiceAccount" and not subject.get("namespace"):
            yield required(f"{path}.namespace")
