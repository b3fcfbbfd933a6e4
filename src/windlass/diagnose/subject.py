"""The object that a question is about (`KIND/NAME`, or a name), with its owners and its pods.

`why` calls `find_subject` first. Often no pod exists (a quota refused it, a queue holds it), so the subject may be
anything with a pod template, and owner references are followed up and down.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.unstructured import nested_map, nested_string
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.model.codec import decode_object
from windlass.model.errors import InputError
from windlass.model.group_membership import GroupReference, group_reference, workload_name
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Pod

ALIASES = {
    "po": "Pod",
    "pod": "Pod",
    "pods": "Pod",
    "job": "Job",
    "jobs": "Job",
    "vcjob": "Job",
    "vj": "Job",
    "deploy": "Deployment",
    "deployment": "Deployment",
    "deployments": "Deployment",
    "rs": "ReplicaSet",
    "replicaset": "ReplicaSet",
    "replicasets": "ReplicaSet",
    "sts": "StatefulSet",
    "statefulset": "StatefulSet",
    "statefulsets": "StatefulSet",
    "ds": "DaemonSet",
    "daemonset": "DaemonSet",
    "daemonsets": "DaemonSet",
    "cj": "CronJob",
    "cronjob": "CronJob",
    "jobset": "JobSet",
    "pytorchjob": "PyTorchJob",
    "tfjob": "TFJob",
    "mpijob": "MPIJob",
    "trainjob": "TrainJob",
    "rayjob": "RayJob",
    "raycluster": "RayCluster",
    "rayservice": "RayService",
    "lws": "LeaderWorkerSet",
    "leaderworkerset": "LeaderWorkerSet",
    "wl": "Workload",
    "workload": "Workload",
    "workloads": "Workload",
    "podgroup": "PodGroup",
    "node": "Node",
    "no": "Node",
    "nodes": "Node",
}
SHORT_NAMES = {
    "cq": "ClusterQueue",
    "lq": "LocalQueue",
    "rf": "ResourceFlavor",
    "quota": "ResourceQuota",
    "pvc": "PersistentVolumeClaim",
    "pv": "PersistentVolume",
    "pdb": "PodDisruptionBudget",
    "pc": "PriorityClass",
    "cm": "ConfigMap",
    "limits": "LimitRange",
}
"""What kubectl calls kinds that make no pods."""
KIND_PREFERENCE = (
    "Pod",
    "Job",
    "JobSet",
    "PyTorchJob",
    "RayJob",
    "Deployment",
    "StatefulSet",
    "DaemonSet",
    "Workload",
)
"""The order in which kinds are tried where several objects have the name."""


class Subject(msgspec.Struct, frozen=True):
    """An object with the objects around it."""

    item: ClusterObject
    owners: tuple[ClusterObject, ...]
    """Nearest first."""
    pods: tuple[ClusterObject, ...]
    """The pods below it (or itself), failed and pending ones first."""
    related: tuple[ClusterObject, ...]
    """Itself, owners, owned objects and Workloads: objects whose events and status are about it. No pods."""

    @property
    def title(self) -> str:
        return self.item.title

    @property
    def pending(self) -> tuple[ClusterObject, ...]:
        """Pods that wait for a node."""
        return tuple(pod for pod in self.pods if is_waiting(pod))


def find_subject(evidence: Evidence, question: str, namespace: str) -> Subject:
    """Raises `InputError` where no object, or objects of several namespaces, have the name."""
    return subject_of(evidence, _named(evidence, question, namespace))


def subject_of(evidence: Evidence, item: ClusterObject) -> Subject:
    owners = tuple(owners_of(evidence, item))
    below = list(_downwards(evidence, item))
    pods = [obj for obj in (item, *below) if obj.kind == "Pod"]
    pods.sort(key=lambda pod: (_RANK.get(phase_of(pod), 1), pod.name))
    family = [item, *(obj for obj in below if obj.kind != "Pod"), *owners]
    family += [child for owner in owners for child in evidence.children(owner) if child.kind == "Workload"]
    unique = {(obj.kind, obj.namespace, obj.name): obj for obj in family}
    return Subject(item, owners, tuple(pods), tuple(unique.values()))


_RANK = {"Failed": 0, "Pending": 0, "": 0, "Unknown": 1, "Running": 2, "Succeeded": 3}


def phase_of(pod: ClusterObject) -> str:
    return nested_string(pod.data, "status", "phase")


def node_of(pod: ClusterObject) -> str:
    return nested_string(pod.data, "spec", "nodeName")


def is_waiting(pod: ClusterObject) -> bool:
    """Whether it waits for a node."""
    return phase_of(pod) in ("Pending", "") and not node_of(pod)


def _named(evidence: Evidence, question: str, namespace: str) -> ClusterObject:
    kind, _, name = question.rpartition("/")
    name = name.strip()
    if not name:
        raise InputError(f"'{question}' has no name", remedy="ask for KIND/NAME, such as pod/train-0")
    if kind and not namespace and kind in {item.namespace for item in evidence.items.values()}:
        kind, namespace = "", kind  # `namespace/name`, as plans and conditions write it
    if kind.lower() in ("gpu", "gpus"):
        return _gpu(name)
    wanted = _kind(evidence, kind)
    found = [
        item
        for item in evidence.items.values()
        if item.name == name
        and (not wanted or item.kind == wanted)
        and (not namespace or not item.namespace or item.namespace == namespace)
    ]
    if not found and wanted in ("", "PodGroup"):
        found = _groups_without_object(evidence, name, namespace)
    if not found:
        raise InputError(
            f"there is no {question}{_where(namespace)} in the cluster", remedy=_near(evidence, name, wanted, namespace)
        )
    places = {item.namespace for item in found}
    if len(places) > 1:
        raise InputError(
            f"{question} is in several namespaces: {', '.join(sorted(places))}", remedy="say which with -n"
        )
    rank = {kind: place for place, kind in enumerate(KIND_PREFERENCE)}
    return min(found, key=lambda item: (rank.get(item.kind, len(rank)), item.kind))


def _gpu(name: str) -> ClusterObject:
    """Stands for one GPU of a node, which is no object of its own; `podless_objects` knows whether it exists."""
    header = ObjectHeader(api_version="v1", kind="GPU", metadata=ObjectMeta(name=name))
    return ClusterObject(RawObject(header, "", {}))


def _groups_without_object(evidence: Evidence, name: str, namespace: str) -> list[ClusterObject]:
    """Gangs of that name that exist only because pods name them; holds name them too, so they can be asked about."""
    found = {
        (pod.namespace, group.source)
        for pod in evidence.of_kind("Pod")
        if not namespace or pod.namespace == namespace
        if (group := group_of(pod)) is not None and group.name == name
    }
    metas = [(source, ObjectMeta(name=name, namespace=place)) for place, source in sorted(found)]
    headers = [ObjectHeader(api_version=f"{source}/", kind="PodGroup", metadata=meta) for source, meta in metas]
    return [ClusterObject(RawObject(header, "", {})) for header in headers]


def _kind(evidence: Evidence, kind: str) -> str:
    """The kind as objects spell it, from any name that kubectl takes (`pytorchjobs.kubeflow.org`, `po`)."""
    short = kind.split(".")[0].lower()
    if not short:
        return ""
    if known := ALIASES.get(short) or SHORT_NAMES.get(short):
        return known
    kinds = {item.kind for item in evidence.items.values()} | set(ALIASES.values())
    for known_kind in sorted(kinds):
        if short in (known_kind.lower(), known_kind.lower() + "s", known_kind.lower() + "es"):
            return known_kind
    raise InputError(f"there is no kind '{kind}' in the cluster", remedy=f"there are {', '.join(sorted(kinds))}")


def _where(namespace: str) -> str:
    return f" in namespace {namespace}" if namespace else ""


def _near(evidence: Evidence, name: str, kind: str, namespace: str) -> str:
    """Objects of similar names; names of the kind that was asked for may end in what their owner's controller adds."""
    import difflib

    items = evidence.items.values()
    alike = {obj.name: obj for obj in items if obj.kind == kind and namespace in ("", obj.namespace)}
    names = alike if difflib.get_close_matches(name, alike, 1, 0.45) else {obj.name: obj for obj in items}
    close = difflib.get_close_matches(name, names, 3, 0.45 if names is alike else 0.6)
    return "did you mean " + ", ".join(f"{names[match].kind.lower()}/{match}" for match in close) if close else ""


def owners_of(evidence: Evidence, item: ClusterObject) -> list[ClusterObject]:
    """Its owner, the owner of that and so on, as far as they are in the evidence."""
    found: list[ClusterObject] = []
    current: ClusterObject | None = item
    while current is not None and len(found) < 16:
        current = evidence.owner(current)
        if current is not None and current not in found and current is not item:
            found.append(current)
        else:
            break
    return found


def _downwards(evidence: Evidence, item: ClusterObject) -> list[ClusterObject]:
    """Everything that it owns, and the pods that name it as their group or Workload."""
    found = {id(obj): obj for obj in _owned(evidence, item)}
    if item.kind == "Workload":
        owner = evidence.owner(item)
        found |= {id(obj): obj for obj in (_owned(evidence, owner) if owner is not None else ())}
    if item.kind in ("PodGroup", "Workload"):
        for pod in evidence.of_kind("Pod"):
            if pod.namespace == item.namespace and _is_named_by(pod, item):
                found[id(pod)] = pod
    found.pop(id(item), None)
    return list(found.values())


def _owned(evidence: Evidence, item: ClusterObject) -> list[ClusterObject]:
    """Owned objects, transitively; cycles of owner references are allowed."""
    found: dict[int, ClusterObject] = {}
    queue = [item]
    while queue:
        for child in evidence.children(queue.pop()):
            if id(child) not in found:
                found[id(child)] = child
                queue.append(child)
    return list(found.values())


def group_of(pod: ClusterObject) -> GroupReference | None:
    """The gang that a pod names in labels, annotations or its spec."""
    native = pod.decoded.spec.scheduling_group if isinstance(pod.decoded, Pod) else None
    return group_reference(pod.labels, pod.annotations, native.pod_group_name if native is not None else "")


def pod_group_of(evidence: Evidence, pod: ClusterObject) -> ClusterObject | None:
    """The PodGroup that a pod names, of the scheduler in whose form it names it."""
    group = group_of(pod)
    return evidence.pod_group(group.source, pod.namespace, group.name) if group is not None else None


def _is_named_by(pod: ClusterObject, item: ClusterObject) -> bool:
    """Whether the pod names this PodGroup or Workload as its own."""
    if item.kind == "Workload":
        return workload_name(pod.labels, pod.annotations) == item.name
    group = group_of(pod)
    return group is not None and (group.source, group.name) == (item.api_group, item.name)


def template_pods(item: ClusterObject) -> tuple[list[Pod], InputError | None]:
    """The pods that an object would create, one per template, and the error of the first that can't be decoded."""
    pods: list[Pod] = []
    for path, template in templates_of(item.data):
        data = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {**nested_map(template, "metadata"), "name": item.name, "namespace": item.namespace},
            "spec": nested_map(template, "spec"),
        }
        try:
            pod = decode_object(data)
        except InputError as error:
            where = error.path.removeprefix("spec.") if error.path else ""
            return pods, InputError(
                error.message,
                object=item.title,
                path=f"{path}.spec.{where}" if where else path,
                remedy=error.remedy,
                code=error.code,
            )
        assert isinstance(pod, Pod), data["kind"]
        pods.append(pod)
    return pods, None


def templates_of(data: object, path: str = "") -> Sequence[tuple[str, dict[str, object]]]:
    """(path, template) of all pod templates in an object, wherever its kind nests them."""
    if isinstance(data, dict):
        spec = data.get("spec")
        holds_pods = isinstance(spec, dict) and isinstance(spec.get("containers"), list)
        if holds_pods and path:
            return [(path, data)]
        found: list[tuple[str, dict[str, object]]] = []
        for key, value in data.items():
            if key != "status" and isinstance(value, dict | list):
                found += templates_of(value, f"{path}.{key}" if path else str(key))
        return found
    if isinstance(data, list):
        return [found for place, value in enumerate(data) for found in templates_of(value, f"{path}[{place}]")]
    return []
