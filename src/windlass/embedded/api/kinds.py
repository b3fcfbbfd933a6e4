"""The kinds that the embedded API server serves: names, verbs, subresources, storage.

`BUILT_IN_KINDS` is the table; `Kinds` holds it together with the kinds of CustomResourceDefinitions. Routing,
discovery, OpenAPI, registry and in-process client look kinds up here. Names are those of the Kubernetes API
(Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from windlass.kube.resources import Resource

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_ON_OBJECT = ("get", "patch", "update")


class Subresource(msgspec.Struct, frozen=True):
    """A path below an object. `group` and `version` are empty if they are the parent's."""

    name: str
    kind: str
    verbs: tuple[str, ...] = _ON_OBJECT
    group: str = ""
    version: str = ""


class Kind(Resource, frozen=True):
    """One kind in one version. Versions of one kind share `stored_as`, the name of their storage."""

    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    singular: str = ""
    list_kind: str = ""
    stored_as: str = ""
    custom: bool = False
    """Whether a CustomResourceDefinition defines it."""

    @property
    def resource(self) -> str:
        """`pods`, `jobs.batch`: the name in the in-process client and in messages of the API."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_resource(self) -> str:
        return self.stored_as or self.resource

    @property
    def singular_name(self) -> str:
        """For discovery and kubectl output."""
        return self.singular or self.kind.lower()

    @property
    def list_kind_name(self) -> str:
        return self.list_kind or self.kind + "List"

    def subresource(self, name: str) -> Subresource | None:
        return next((found for found in self.subresources if found.name == name), None)

    def has_subresource(self, subresource: str) -> bool:
        return self.subresource(subresource) is not None


_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")
_FINALIZE = Subresource("finalize", "Namespace", ("update",))
_TOKEN = Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1")
_OF_PODS = (
    Subresource("attach", "PodAttachOptions", ("create", "get")),
    Subresource("binding", "Binding", ("create",)),
    Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
    Subresource("exec", "PodExecOptions", ("create", "get")),
    Subresource("log", "Pod", ("get",)),
    Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
)
_ALL = ("all",)
_REVIEW = ("create",)
_WITHOUT_COLLECTION = tuple(verb for verb in ALL_VERBS if verb != "deletecollection")


def _kind(
    kind: str,
    plural: str,
    group: str = "",
    short_names: str = "",
    subresources: tuple[Subresource, ...] = (),
    *,
    status: bool = False,
    **more: Any,
) -> Kind:
    """A row of the tables below; `status`: the last of its subresources."""
    if status:
        subresources = (*subresources, Subresource("status", kind))
    return Kind(kind, plural, group, "v1", short_names=tuple(short_names.split()), subresources=subresources, **more)


_CORE = (
    _kind("Binding", "bindings", verbs=("create",)),
    _kind("ConfigMap", "configmaps", "", "cm"),
    _kind("Endpoints", "endpoints", "", "ep", singular="endpoints"),
    _kind("Event", "events", "", "ev"),
    _kind("LimitRange", "limitranges", "", "limits"),
    _kind(
        "Namespace",
        "namespaces",
        "",
        "ns",
        (_FINALIZE,),
        status=True,
        namespaced=False,
        verbs=_WITHOUT_COLLECTION,
    ),
    _kind("Node", "nodes", "", "no", status=True, namespaced=False),
    _kind("PersistentVolumeClaim", "persistentvolumeclaims", "", "pvc", status=True),
    _kind("PersistentVolume", "persistentvolumes", "", "pv", status=True, namespaced=False),
    _kind("Pod", "pods", "", "po", _OF_PODS, status=True, categories=_ALL),
    _kind("ReplicationController", "replicationcontrollers", "", "rc", (_SCALE,), status=True, categories=_ALL),
    _kind("ResourceQuota", "resourcequotas", "", "quota", status=True),
    _kind("Secret", "secrets"),
    _kind("ServiceAccount", "serviceaccounts", "", "sa", (_TOKEN,)),
    _kind("Service", "services", "", "svc", status=True, categories=_ALL),
)
_APPS = (
    _kind("ControllerRevision", "controllerrevisions", "apps"),
    _kind("DaemonSet", "daemonsets", "apps", "ds", status=True, categories=_ALL),
    _kind("Deployment", "deployments", "apps", "deploy", (_SCALE,), status=True, categories=_ALL),
    _kind("ReplicaSet", "replicasets", "apps", "rs", (_SCALE,), status=True, categories=_ALL),
    _kind("StatefulSet", "statefulsets", "apps", "sts", (_SCALE,), status=True, categories=_ALL),
)
_OTHERS = (
    _kind("Event", "events", "events.k8s.io", "ev", stored_as="events"),
    _kind("SelfSubjectReview", "selfsubjectreviews", "authentication.k8s.io", namespaced=False, verbs=_REVIEW),
    _kind("TokenReview", "tokenreviews", "authentication.k8s.io", namespaced=False, verbs=_REVIEW),
    _kind("LocalSubjectAccessReview", "localsubjectaccessreviews", "authorization.k8s.io", verbs=_REVIEW),
    _kind(
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "authorization.k8s.io",
        namespaced=False,
        verbs=_REVIEW,
    ),
    _kind(
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "authorization.k8s.io",
        namespaced=False,
        verbs=_REVIEW,
    ),
    _kind("SubjectAccessReview", "subjectaccessreviews", "authorization.k8s.io", namespaced=False, verbs=_REVIEW),
    _kind("CronJob", "cronjobs", "batch", "cj", status=True, categories=_ALL),
    _kind("Job", "jobs", "batch", status=True, categories=_ALL),
    _kind("Ingress", "ingresses", "networking.k8s.io", "ing", status=True),
    _kind("NetworkPolicy", "networkpolicies", "networking.k8s.io", "netpol"),
    _kind("PodDisruptionBudget", "poddisruptionbudgets", "policy", "pdb", status=True),
    _kind("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", namespaced=False),
    _kind("ClusterRole", "clusterroles", "rbac.authorization.k8s.io", namespaced=False),
    _kind("RoleBinding", "rolebindings", "rbac.authorization.k8s.io"),
    _kind("Role", "roles", "rbac.authorization.k8s.io"),
    _kind("CSIDriver", "csidrivers", "storage.k8s.io", namespaced=False),
    _kind("CSINode", "csinodes", "storage.k8s.io", namespaced=False),
    _kind("StorageClass", "storageclasses", "storage.k8s.io", "sc", namespaced=False),
    _kind("VolumeAttachment", "volumeattachments", "storage.k8s.io", status=True, namespaced=False),
    _kind(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "apiextensions.k8s.io",
        "crd crds",
        status=True,
        namespaced=False,
        categories=("api-extensions",),
    ),
    _kind("PriorityClass", "priorityclasses", "scheduling.k8s.io", "pc", namespaced=False),
    _kind("Lease", "leases", "coordination.k8s.io"),
    _kind("RuntimeClass", "runtimeclasses", "node.k8s.io", namespaced=False),
    _kind("EndpointSlice", "endpointslices", "discovery.k8s.io"),
)
BUILT_IN_KINDS: tuple[Kind, ...] = (*_CORE, *_APPS, *_OTHERS)
"""In the order in which Kubernetes' API server lists groups and resources."""


class Kinds:
    """The kinds served now. `generation` changes with every change, so that derived documents can be cached."""

    def __init__(self) -> None:
        self.generation = 0
        self._by_path: dict[tuple[str, str, str], Kind] = {}
        self._by_kind: dict[tuple[str, str, str], Kind] = {}
        self._by_resource: dict[str, Kind] = {}
        for kind in BUILT_IN_KINDS:
            self.add(kind)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._by_path.values())

    def add(self, kind: Kind) -> None:
        """Serves a kind; replaces one with the same path."""
        self._by_path[kind.group, kind.version, kind.plural] = kind
        self._by_kind[kind.group, kind.version, kind.kind] = kind
        self._by_resource.setdefault(kind.resource, kind)
        self.generation += 1

    def remove(self, group: str, plural: str) -> None:
        """Stops serving a kind in all its versions."""
        removed = [kind for kind in self if (kind.group, kind.plural) == (group, plural)]
        for kind in removed:
            del self._by_path[kind.group, kind.version, kind.plural]
            self._by_kind.pop((kind.group, kind.version, kind.kind), None)
            self._by_resource.pop(kind.resource, None)
        self.generation += bool(removed)

    def by_path(self, group: str, version: str, plural: str) -> Kind | None:
        """By the parts of a request path."""
        return self._by_path.get((group, version, plural))

    def by_resource(self, resource: str) -> Kind | None:
        """By `pods` or `jobs.batch`, in the preferred version."""
        return self._by_resource.get(resource)

    def by_kind(self, api_version: str, kind: str) -> Kind | None:
        """By an object's apiVersion and kind."""
        group, _, version = api_version.rpartition("/")
        return self._by_kind.get((group, version, kind))

    def versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        return list(dict.fromkeys(kind.version for kind in self if kind.group == group))

    def groups(self) -> list[str]:
        """Every group but the core one, in the order in which discovery lists them."""
        return list(dict.fromkeys(kind.group for kind in self if kind.group))
