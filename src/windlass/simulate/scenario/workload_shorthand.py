"""Short forms of work: one line for a job, a pod or a group of pods, as the Kubernetes objects that they stand for.

Called by `load`. Objects come out as plain data; where the work runs already, its pods come with it, on their nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from windlass.model.errors import InputError
from windlass.model.unstructured import Unstructured
from windlass.simulate.clock import virtual_timestamp
from windlass.simulate.scenario.cluster_shorthand import GPU, KUEUE, level_label
from windlass.simulate.scenario.durations import parse_duration, parse_moment
from windlass.simulate.scenario.member_pods import member_pod, pod_templates_of, running_pod
from windlass.simulate.scenario.spec import NodePlacement, ShortPodSet, ShortTopology, ShortWorkload

KINDS = ("job", "pod", "group", "native", "volcano", "coscheduling", "workload")
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"
SIMULATED_DURATION = "sandbox.windlass.dev/duration"
DECLARED_DURATION = "windlass.dev/duration"
LAST_CHECKPOINT = "windlass.dev/last-checkpoint"
PODSET = "kueue.x-k8s.io/podset"
_TOPOLOGY = "kueue.x-k8s.io/podset-"


def workload_objects(work: ShortWorkload, path: str) -> list[Unstructured]:
    """The objects of all `count` of them."""
    given = [kind for kind in KINDS if getattr(work, kind)]
    if len(given) != 1:
        raise InputError(
            f"names {' and '.join(given) or 'no kind of work'}",
            path=path,
            remedy=f"give one of {', '.join(KINDS)}",
        )
    if not 1 <= work.count <= 10_000 or not 1 <= work.pods <= 100_000:
        raise InputError("is out of range", path=f"{path}.count", remedy="use 1 to 10000")
    kind, name = given[0], getattr(work, given[0])
    names = [name] if work.count == 1 else [f"{name}-{number}" for number in range(1, work.count + 1)]
    return [tree for one in names for tree in _Writer(work, kind, one, path).objects()]


class _Writer:
    def __init__(self, work: ShortWorkload, kind: str, name: str, path: str) -> None:
        self.work, self.kind, self.name, self.path = work, kind, name, path
        self.sets = work.sets or (
            ShortPodSet(name="main", pods=work.pods, gpus=work.gpus, cpu=work.cpu, memory=work.memory),
        )
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
            raise InputError(
                "a Job has one set of pods", path=f"{self.path}.sets", remedy="use workload or group"
            )
        running = bool(self.work.nodes)
        annotations = self._object_annotations()
        if self.work.minimum is not None:
            annotations[MIN_PARALLELISM] = str(self.work.minimum)
        spec = {
            "parallelism": self.work.pods,
            "completions": self.work.pods,
            "suspend": bool(self.work.queue) and not running,
            "template": self._template(self.sets[0]),
        }
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": self._metadata(self._queue_labels(), annotations),
            "spec": spec,
        }

    def _workload(self) -> Unstructured:
        spec: Unstructured = {
            "queueName": self.work.queue,
            "podSets": [self._pod_set(one) for one in self.sets],
        }
        if isinstance(self.work.priority, int):
            spec["priority"] = self.work.priority
        else:
            spec["priorityClassRef"] = {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": self.work.priority,
            }
        metadata = self._metadata(self.work.labels, self._object_annotations())
        return {"apiVersion": KUEUE, "kind": "Workload", "metadata": metadata, "spec": spec}

    def _pod_set(self, one: ShortPodSet) -> Unstructured:
        made: Unstructured = {"name": one.name, "count": one.pods, "template": self._template(one)}
        minimum = one.minimum if self.work.sets else self.work.minimum
        if minimum is not None:
            made["minCount"] = minimum
        return made

    def _group_objects(self) -> list[Unstructured]:
        """A PodGroup of the kind that is asked for, and its pods; for a single pod, only that."""
        total = sum(one.pods for one in self.sets)
        minimum = total if self.work.minimum is None else self.work.minimum
        places = _places(self.work.nodes, total, f"{self.path}.nodes")
        made = list(self._pod_group(minimum))
        number = 0
        for one in self.sets:
            for _ in range(one.pods):
                pod = self._member(one, number, total)
                made.append(running_pod(pod, places[number], -self.since) if places else pod)
                number += 1
        return made

    def _pod_group(self, minimum: int) -> Iterator[Unstructured]:
        versions = {
            "native": "scheduling.k8s.io/v1beta1",
            "volcano": "scheduling.volcano.sh/v1beta1",
            "coscheduling": "scheduling.x-k8s.io/v1alpha1",
        }
        if self.kind not in versions:
            return
        spec: Unstructured = {"minMember": minimum}
        if self.kind == "native":
            spec = {"schedulingPolicy": {"gang": {"minCount": minimum}}}
        if isinstance(self.work.priority, str):
            spec["priorityClassName"] = self.work.priority
        yield {
            "apiVersion": versions[self.kind],
            "kind": "PodGroup",
            "metadata": self._metadata(self._queue_labels(), self._object_annotations()),
            "spec": spec,
        }

    def _member(self, one: ShortPodSet, number: int, total: int) -> Unstructured:
        template = self._template(one)
        metadata = template["metadata"]
        metadata["labels"] |= self._queue_labels()
        metadata["annotations"] |= self._object_annotations()
        if self.kind == "group":
            metadata["labels"]["kueue.x-k8s.io/pod-group-name"] = self.name
            metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"] = str(total)
        elif self.kind == "volcano":
            metadata["annotations"]["scheduling.k8s.io/group-name"] = self.name
        elif self.kind == "coscheduling":
            metadata["labels"]["scheduling.x-k8s.io/pod-group"] = self.name
        elif self.kind == "native":
            template["spec"]["schedulingGroup"] = {"podGroupName": self.name}
        metadata |= self._identity(self.name if self.kind == "pod" else f"{self.name}-{number}")
        owner = self.work.owner or ("" if self.kind == "pod" else f"StatefulSet/{self.name}")
        if owner and owner != "none":
            kind, _, name = owner.partition("/")
            reference = {"apiVersion": "apps/v1", "kind": kind, "name": name or self.name, "controller": True}
            metadata["ownerReferences"] = [reference]
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}

    # Parts

    def _with_pods(self, tree: Unstructured) -> list[Unstructured]:
        """The object, and its pods where it runs already."""
        if not self.work.nodes:
            return [tree]
        places = iter(_places(self.work.nodes, sum(one.pods for one in self.sets), f"{self.path}.nodes"))
        made = [tree]
        number = 0
        for template in pod_templates_of(tree):
            for _ in range(template.count):
                made.append(running_pod(member_pod(tree, template, number), next(places), -self.since))
                number += 1
        return made

    def _metadata(self, labels: dict[str, str], annotations: dict[str, str]) -> Unstructured:
        return {**self._identity(self.name), "labels": dict(labels), "annotations": annotations}

    def _identity(self, name: str) -> Unstructured:
        made: Unstructured = {"name": name, "namespace": self.work.namespace}
        if self.work.since:
            made["creationTimestamp"] = virtual_timestamp(-self.since)
        return made

    def _queue_labels(self) -> dict[str, str]:
        labels = dict(self.work.labels)
        if self.work.queue:
            labels[QUEUE_NAME] = self.work.queue
            if isinstance(self.work.priority, str):
                labels[PRIORITY_CLASS] = self.work.priority
        return labels

    def _object_annotations(self) -> dict[str, str]:
        annotations = dict(self.work.annotations)
        if self.work.duration:
            parse_duration(self.work.duration, f"{self.path}.duration")
            annotations[SIMULATED_DURATION] = self.work.duration
        if self.work.limit:
            parse_duration(self.work.limit, f"{self.path}.limit")
            annotations[DECLARED_DURATION] = self.work.limit
        if self.work.checkpoint:
            annotations[LAST_CHECKPOINT] = virtual_timestamp(
                parse_moment(self.work.checkpoint, f"{self.path}.checkpoint")
            )
        return annotations

    def _template(self, one: ShortPodSet) -> Unstructured:
        annotations = topology_annotations(one.topology or self.work.topology)
        limits: Unstructured = {
            key: value for key, value in (("cpu", one.cpu), ("memory", one.memory)) if value is not None
        }
        if isinstance(one.gpus, int):
            limits |= {GPU: one.gpus} if one.gpus else {}
        else:
            annotations["gpu-fraction"] = str(one.gpus)
        spec: Unstructured = {
            "containers": [{"name": "main", "resources": {"limits": limits, "requests": dict(limits)}}]
        }
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
            labels[PODSET] = one.name
        return {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": {**spec, **self.work.spec},
        }


def topology_annotations(wish: ShortTopology | None) -> dict[str, str]:
    """Kueue's annotations of a pod template."""
    if wish is None:
        return {}
    made = {}
    if wish.required:
        made[_TOPOLOGY + "required-topology"] = level_label(wish.required)
    if wish.preferred:
        made[_TOPOLOGY + "preferred-topology"] = level_label(wish.preferred)
    if wish.unconstrained:
        made[_TOPOLOGY + "unconstrained-topology"] = "true"
    if wish.slices is not None:
        made[_TOPOLOGY + "slice-required-topology"] = level_label(wish.slices.within)
        made[_TOPOLOGY + "slice-size"] = str(wish.slices.size)
    if wish.group:
        made[_TOPOLOGY + "group-name"] = wish.group
    return made


def _places(nodes: NodePlacement, pods: int, path: str) -> Sequence[str]:
    """One node a pod, or nothing where it doesn't run yet."""
    if isinstance(nodes, dict):
        places = [node for node, count in nodes.items() for _ in range(count)]
    else:
        places = list(nodes) * (pods if len(nodes) == 1 else 1)
    if places and len(places) != pods:
        raise InputError(
            f"{len(places)} places for {pods} pods", path=path, remedy="name one node a pod, or one for all"
        )
    return places
