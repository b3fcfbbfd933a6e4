"""Short forms of workloads in a scenario file: expands one line into a Job, a pod, a group of pods or a Workload.

Called by `scenario.load`; returns Kubernetes objects as plain data. A workload that runs at the start comes with its
pods on their nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.kai import KAI_FRACTION
from windlass.model.names.kubernetes import APPS_API_VERSION, BATCH_API_VERSION, POD_GROUP_API_VERSION
from windlass.model.names.kueue import (
    KUEUE_API_VERSION,
    KUEUE_POD_GROUP_NAME,
    MIN_PARALLELISM_ANNOTATION,
    POD_GROUP_TOTAL_COUNT_ANNOTATION,
    POD_SET_GROUP_ANNOTATION,
    POD_SET_LABEL,
    PREFERRED_TOPOLOGY_ANNOTATION,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY_ANNOTATION,
    SLICE_REQUIRED_TOPOLOGY_ANNOTATION,
    SLICE_SIZE_ANNOTATION,
    UNCONSTRAINED_TOPOLOGY_ANNOTATION,
    WORKLOAD_PRIORITY_CLASS_LABEL,
)
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.others import COSCHEDULING_API_VERSION, COSCHEDULING_LABEL
from windlass.model.names.volcano import VOLCANO_API_VERSION, VOLCANO_GROUP_ANNOTATION
from windlass.model.names.windlass import (
    DECLARED_DURATION_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    SIMULATED_DURATION_ANNOTATION,
)
from windlass.model.unstructured import Unstructured
from windlass.simulate.clock import virtual_timestamp
from windlass.simulate.scenario.cluster_shorthand import level_label
from windlass.simulate.scenario.durations import parse_duration, parse_moment
from windlass.simulate.scenario.member_pods import member_pod, pod_templates_of, running_pod
from windlass.simulate.scenario.spec import NodePlacement, ShortPodSet, ShortTopology, ShortWorkload

KINDS = ("job", "pod", "group", "native", "volcano", "coscheduling", "workload")


def workload_objects(work: ShortWorkload, path: str) -> list[Unstructured]:
    """The objects of a short form, `count` times."""
    given = [kind for kind in KINDS if getattr(work, kind)]
    if len(given) != 1:
        message = f"names {' and '.join(given) or 'no kind of work'}"
        raise InputError(message, path=path, remedy=f"give one of {', '.join(KINDS)}")
    if not 1 <= work.count <= 10_000 or not 1 <= work.pods <= 100_000:
        raise InputError("is out of range", path=f"{path}.count", remedy="use 1 to 10000")
    kind, name = given[0], getattr(work, given[0])
    names = [name] if work.count == 1 else [f"{name}-{number}" for number in range(1, work.count + 1)]
    return [obj for name in names for obj in _WorkloadBuilder(work, kind, name, path).objects()]


POD_GROUP_VERSIONS = {
    "native": POD_GROUP_API_VERSION,
    "volcano": VOLCANO_API_VERSION,
    "coscheduling": COSCHEDULING_API_VERSION,
}


class _WorkloadBuilder:
    def __init__(self, work: ShortWorkload, kind: str, name: str, path: str) -> None:
        self.work, self.kind, self.name, self.path = work, kind, name, path
        only = ShortPodSet(name="main", pods=work.pods, gpus=work.gpus, cpu=work.cpu, memory=work.memory)
        self.sets = work.sets or (only,)
        self.since = parse_duration(work.since, f"{path}.since") if work.since else 0

    def objects(self) -> list[Unstructured]:
        if self.kind == "job":
            return self._with_pods(self._job())
        if self.kind == "workload":
            return self._with_pods(self._workload())
        return self._group_objects()

    # Kinds

    def _job(self) -> Unstructured:
        if self.work.sets:
            remedy = "use workload or group"
            raise InputError("a Job has one set of pods", path=f"{self.path}.sets", remedy=remedy)
        annotations = self._object_annotations()
        if self.work.minimum is not None:
            annotations[MIN_PARALLELISM_ANNOTATION] = str(self.work.minimum)
        spec = {
            "parallelism": self.work.pods,
            "completions": self.work.pods,
            "suspend": bool(self.work.queue) and not self.work.nodes,
            "template": self._template(self.sets[0]),
        }
        metadata = self._metadata(self._queue_labels(), annotations)
        return {"apiVersion": BATCH_API_VERSION, "kind": "Job", "metadata": metadata, "spec": spec}

    def _workload(self) -> Unstructured:
        spec: Unstructured = {"queueName": self.work.queue, "podSets": list(map(self._pod_set, self.sets))}
        if isinstance(self.work.priority, int):
            spec["priority"] = self.work.priority
        else:
            kind = {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass"}
            spec["priorityClassRef"] = {**kind, "name": self.work.priority}
        metadata = self._metadata(self.work.labels, self._object_annotations())
        return {"apiVersion": KUEUE_API_VERSION, "kind": "Workload", "metadata": metadata, "spec": spec}

    def _pod_set(self, pod_set: ShortPodSet) -> Unstructured:
        obj: Unstructured = {"name": pod_set.name, "count": pod_set.pods, "template": self._template(pod_set)}
        minimum = pod_set.minimum if self.work.sets else self.work.minimum
        if minimum is not None:
            obj["minCount"] = minimum
        return obj

    def _group_objects(self) -> list[Unstructured]:
        """The PodGroup, if the kind has one, and the pods."""
        total = sum(pod_set.pods for pod_set in self.sets)
        minimum = total if self.work.minimum is None else self.work.minimum
        nodes_of_pods = _expand_nodes(self.work.nodes, total, f"{self.path}.nodes")
        pod_sets = [pod_set for pod_set in self.sets for _ in range(pod_set.pods)]
        pods = [self._member(pod_set, number, total) for number, pod_set in enumerate(pod_sets)]
        if nodes_of_pods:
            placed = zip(pods, nodes_of_pods, strict=True)
            pods = [running_pod(pod, node, -self.since) for pod, node in placed]
        return [*self._pod_group(minimum), *pods]

    def _pod_group(self, minimum: int) -> Iterator[Unstructured]:
        if self.kind not in POD_GROUP_VERSIONS:
            return
        spec: Unstructured = {"minMember": minimum}
        if self.kind == "native":
            spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        if isinstance(self.work.priority, str):
            spec["priorityClassName"] = self.work.priority
        header = {"apiVersion": POD_GROUP_VERSIONS[self.kind], "kind": "PodGroup"}
        metadata = self._metadata(self._queue_labels(), self._object_annotations())
        yield {**header, "metadata": metadata, "spec": spec}

    def _member(self, pod_set: ShortPodSet, number: int, total: int) -> Unstructured:
        template = self._template(pod_set)
        metadata = template["metadata"]
        metadata["labels"] |= self._queue_labels()
        metadata["annotations"] |= self._object_annotations()
        if self.kind == "group":
            metadata["labels"][KUEUE_POD_GROUP_NAME] = self.name
            metadata["annotations"][POD_GROUP_TOTAL_COUNT_ANNOTATION] = str(total)
        elif self.kind == "volcano":
            metadata["annotations"][VOLCANO_GROUP_ANNOTATION] = self.name
        elif self.kind == "coscheduling":
            metadata["labels"][COSCHEDULING_LABEL] = self.name
        elif self.kind == "native":
            template["spec"]["schedulingGroup"] = {"podGroupName": self.name}
        metadata |= self._identity(self.name if self.kind == "pod" else f"{self.name}-{number}")
        owner = self.work.owner or ("" if self.kind == "pod" else f"StatefulSet/{self.name}")
        if owner and owner != "none":
            kind, _, name = owner.partition("/")
            reference = {"apiVersion": APPS_API_VERSION, "kind": kind, "name": name or self.name}
            metadata["ownerReferences"] = [{**reference, "controller": True}]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    # Parts

    def _with_pods(self, obj: Unstructured) -> list[Unstructured]:
        """The object, and its pods if it runs at the start."""
        if not self.work.nodes:
            return [obj]
        total = sum(pod_set.pods for pod_set in self.sets)
        nodes_of_pods = iter(_expand_nodes(self.work.nodes, total, f"{self.path}.nodes"))
        templates = [template for template in pod_templates_of(obj) for _ in range(template.count)]
        pods = [member_pod(obj, template, number) for number, template in enumerate(templates)]
        return [obj, *(running_pod(pod, next(nodes_of_pods), -self.since) for pod in pods)]

    def _metadata(self, labels: dict[str, str], annotations: dict[str, str]) -> Unstructured:
        return {**self._identity(self.name), "labels": dict(labels), "annotations": annotations}

    def _identity(self, name: str) -> Unstructured:
        metadata: Unstructured = {"name": name, "namespace": self.work.namespace}
        if self.work.since:
            metadata["creationTimestamp"] = virtual_timestamp(-self.since)
        return metadata

    def _queue_labels(self) -> dict[str, str]:
        labels = dict(self.work.labels)
        if self.work.queue:
            labels[QUEUE_NAME_LABEL] = self.work.queue
            if isinstance(self.work.priority, str):
                labels[WORKLOAD_PRIORITY_CLASS_LABEL] = self.work.priority
        return labels

    def _object_annotations(self) -> dict[str, str]:
        annotations = dict(self.work.annotations)
        if self.work.duration:
            parse_duration(self.work.duration, f"{self.path}.duration")
            annotations[SIMULATED_DURATION_ANNOTATION] = self.work.duration
        if self.work.limit:
            parse_duration(self.work.limit, f"{self.path}.limit")
            annotations[DECLARED_DURATION_ANNOTATION] = self.work.limit
        if self.work.checkpoint:
            written_at = parse_moment(self.work.checkpoint, f"{self.path}.checkpoint")
            annotations[LAST_CHECKPOINT_ANNOTATION] = virtual_timestamp(written_at)
        return annotations

    def _template(self, pod_set: ShortPodSet) -> Unstructured:
        annotations = topology_annotations(pod_set.topology or self.work.topology)
        amounts = {"cpu": pod_set.cpu, "memory": pod_set.memory}
        limits: Unstructured = {name: amount for name, amount in amounts.items() if amount is not None}
        if isinstance(pod_set.gpus, int):
            limits |= {GPU_RESOURCE: pod_set.gpus} if pod_set.gpus else {}
        else:
            annotations[KAI_FRACTION] = str(pod_set.gpus)
        resources = {"limits": limits, "requests": dict(limits)}
        spec: Unstructured = {"containers": [{"name": "main", "resources": resources}]}
        if self.work.selector:
            spec["nodeSelector"] = dict(self.work.selector)
        if self.work.tolerations:
            spec["tolerations"] = msgspec.to_builtins(self.work.tolerations)
        if isinstance(self.work.priority, int):
            spec |= {"priority": self.work.priority} if self.work.priority else {}
        elif not self.work.queue:
            spec["priorityClassName"] = self.work.priority
        labels = dict(self.work.labels)
        if self.work.sets and self.kind not in ("job", "workload"):
            labels[POD_SET_LABEL] = pod_set.name
        metadata = {"labels": labels, "annotations": annotations}
        return {"metadata": metadata, "spec": {**spec, **self.work.spec}}


def topology_annotations(topology: ShortTopology | None) -> dict[str, str]:
    """Kueue's annotations of a pod template."""
    if topology is None:
        return {}
    annotations = {}
    if topology.required:
        annotations[REQUIRED_TOPOLOGY_ANNOTATION] = level_label(topology.required)
    if topology.preferred:
        annotations[PREFERRED_TOPOLOGY_ANNOTATION] = level_label(topology.preferred)
    if topology.unconstrained:
        annotations[UNCONSTRAINED_TOPOLOGY_ANNOTATION] = "true"
    if topology.slices is not None:
        annotations[SLICE_REQUIRED_TOPOLOGY_ANNOTATION] = level_label(topology.slices.within)
        annotations[SLICE_SIZE_ANNOTATION] = str(topology.slices.size)
    if topology.group:
        annotations[POD_SET_GROUP_ANNOTATION] = topology.group
    return annotations


def _expand_nodes(nodes: NodePlacement, pods: int, path: str) -> Sequence[str]:
    """One node per pod; empty if the workload doesn't run at the start."""
    if isinstance(nodes, dict):
        nodes_of_pods = [node for node, count in nodes.items() for _ in range(count)]
    else:
        nodes_of_pods = list(nodes) * (pods if len(nodes) == 1 else 1)
    if nodes_of_pods and len(nodes_of_pods) != pods:
        remedy = "name one node per pod, or one for all"
        raise InputError(f"{len(nodes_of_pods)} nodes for {pods} pods", path=path, remedy=remedy)
    return nodes_of_pods
