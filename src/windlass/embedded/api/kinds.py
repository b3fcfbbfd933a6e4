"""The kinds that the embedded API server serves: names, verbs, subresources, storage.

`BUILT_IN_KINDS` is the table; `Kinds` holds it together with the kinds of CustomResourceDefinitions. Routing,
discovery, OpenAPI, registry and in-process client look kinds up here. Names are those of the Kubernetes API
(Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Iterator

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


def _status(kind: str) -> Subresource:
    return Subresource("status", kind)


_SCALE = Subresource("scale", "Scale", group="autoscaling", version="v1")
_ALL = ("all",)

_CORE = (
    Kind("Binding", "bindings", "", "v1", verbs=("create",)),
    Kind("ConfigMap", "configmaps", "", "v1", short_names=("cm",)),
    Kind("Endpoints", "endpoints", "", "v1", short_names=("ep",), singular="endpoints"),
    Kind("Event", "events", "", "v1", short_names=("ev",)),
    Kind("LimitRange", "limitranges", "", "v1", short_names=("limits",)),
    Kind(
        "Namespace",
        "namespaces",
        "",
        "v1",
        namespaced=False,
        short_names=("ns",),
        subresources=(Subresource("finalize", "Namespace", ("update",)), _status("Namespace")),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Kind("Node", "nodes", "", "v1", namespaced=False, short_names=("no",), subresources=(_status("Node"),)),
    Kind(
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        "",
        "v1",
        short_names=("pvc",),
        subresources=(_status("PersistentVolumeClaim"),),
    ),
    Kind(
        "PersistentVolume",
        "persistentvolumes",
        "",
        "v1",
        namespaced=False,
        short_names=("pv",),
        subresources=(_status("PersistentVolume"),),
    ),
    Kind(
        "Pod",
        "pods",
        "",
        "v1",
        short_names=("po",),
        categories=_ALL,
        subresources=(
            Subresource("attach", "PodAttachOptions", ("create", "get")),
            Subresource("binding", "Binding", ("create",)),
            Subresource("eviction", "Eviction", ("create",), "policy", "v1"),
            Subresource("exec", "PodExecOptions", ("create", "get")),
            Subresource("log", "Pod", ("get",)),
            Subresource("portforward", "PodPortForwardOptions", ("create", "get")),
            _status("Pod"),
        ),
    ),
    Kind(
        "ReplicationController",
        "replicationcontrollers",
        "",
        "v1",
        short_names=("rc",),
        categories=_ALL,
        subresources=(_SCALE, _status("ReplicationController")),
    ),
    Kind(
        "ResourceQuota",
        "resourcequotas",
        "",
        "v1",
        short_names=("quota",),
        subresources=(_status("ResourceQuota"),),
    ),
    Kind("Secret", "secrets", "", "v1"),
    Kind(
        "ServiceAccount",
        "serviceaccounts",
        "",
        "v1",
        short_names=("sa",),
        subresources=(Subresource("token", "TokenRequest", ("create",), "authentication.k8s.io", "v1"),),
    ),
    Kind(
        "Service",
        "services",
        "",
        "v1",
        short_names=("svc",),
        categories=_ALL,
        subresources=(_status("Service"),),
    ),
)

_APPS = (
    Kind("ControllerRevision", "controllerrevisions", "apps", "v1"),
    Kind(
        "DaemonSet",
        "daemonsets",
        "apps",
        "v1",
        short_names=("ds",),
        categories=_ALL,
        subresources=(_status("DaemonSet"),),
    ),
    Kind(
        "Deployment",
        "deployments",
        "apps",
        "v1",
        short_names=("deploy",),
        categories=_ALL,
        subresources=(_SCALE, _status("Deployment")),
    ),
    Kind(
        "ReplicaSet",
        "replicasets",
        "apps",
        "v1",
        short_names=("rs",),
        categories=_ALL,
        subresources=(_SCALE, _status("ReplicaSet")),
    ),
    Kind(
        "StatefulSet",
        "statefulsets",
        "apps",
        "v1",
        short_names=("sts",),
        categories=_ALL,
        subresources=(_SCALE, _status("StatefulSet")),
    ),
)

_REVIEW = ("create",)

_OTHERS = (
    Kind("Event", "events", "events.k8s.io", "v1", short_names=("ev",), stored_as="events"),
    Kind(
        "SelfSubjectReview",
        "selfsubjectreviews",
        "authentication.k8s.io",
        "v1",
        namespaced=False,
        verbs=_REVIEW,
    ),
    Kind("TokenReview", "tokenreviews", "authentication.k8s.io", "v1", namespaced=False, verbs=_REVIEW),
    Kind(
        "LocalSubjectAccessReview", "localsubjectaccessreviews", "authorization.k8s.io", "v1", verbs=_REVIEW
    ),
    Kind(
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "authorization.k8s.io",
        "v1",
        namespaced=False,
        verbs=_REVIEW,
    ),
    Kind(
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "authorization.k8s.io",
        "v1",
        namespaced=False,
        verbs=_REVIEW,
    ),
    Kind(
        "SubjectAccessReview",
        "subjectaccessreviews",
        "authorization.k8s.io",
        "v1",
        namespaced=False,
        verbs=_REVIEW,
    ),
    Kind(
        "CronJob",
        "cronjobs",
        "batch",
        "v1",
        short_names=("cj",),
        categories=_ALL,
        subresources=(_status("CronJob"),),
    ),
    Kind("Job", "jobs", "batch", "v1", categories=_ALL, subresources=(_status("Job"),)),
    Kind(
        "Ingress",
        "ingresses",
        "networking.k8s.io",
        "v1",
        short_names=("ing",),
        subresources=(_status("Ingress"),),
    ),
    Kind("NetworkPolicy", "networkpolicies", "networking.k8s.io", "v1", short_names=("netpol",)),
    Kind(
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "policy",
        "v1",
        short_names=("pdb",),
        subresources=(_status("PodDisruptionBudget"),),
    ),
    Kind("ClusterRoleBinding", "clusterrolebindings", "rbac.authorization.k8s.io", "v1", namespaced=False),
    Kind("ClusterRole", "clusterroles", "rbac.authorization.k8s.io", "v1", namespaced=False),
    Kind("RoleBinding", "rolebindings", "rbac.authorization.k8s.io", "v1"),
    Kind("Role", "roles", "rbac.authorization.k8s.io", "v1"),
    Kind("CSIDriver", "csidrivers", "storage.k8s.io", "v1", namespaced=False),
    Kind("CSINode", "csinodes", "storage.k8s.io", "v1", namespaced=False),
    Kind("StorageClass", "storageclasses", "storage.k8s.io", "v1", namespaced=False, short_names=("sc",)),
    Kind(
        "VolumeAttachment",
        "volumeattachments",
        "storage.k8s.io",
        "v1",
        namespaced=False,
        subresources=(_status("VolumeAttachment"),),
    ),
    Kind(
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "apiextensions.k8s.io",
        "v1",
        namespaced=False,
        short_names=("crd", "crds"),
        categories=("api-extensions",),
        subresources=(_status("CustomResourceDefinition"),),
    ),
    Kind(
        "PriorityClass",
        "priorityclasses",
        "scheduling.k8s.io",
        "v1",
        namespaced=False,
        short_names=("pc",),
    ),
    Kind("Lease", "leases", "coordination.k8s.io", "v1"),
    Kind("RuntimeClass", "runtimeclasses", "node.k8s.io", "v1", namespaced=False),
    Kind("EndpointSlice", "endpointslices", "discovery.k8s.io", "v1"),
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
