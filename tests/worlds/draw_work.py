"""Draws work: Jobs, owners of other kinds, groups of pods in every form, single pods and services.

Every rule that is drawn is counted in `play.report`, so that a run shows how often each occurred.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.invariants.objects import HOSTNAME, QUEUE
from tests.worlds.draw_world import GPU, MIG, POOL_LABEL, PRIORITIES, SPECIAL_KEY

from windlass.model.group_membership import COSCHEDULING, KUEUE_GROUP, NATIVE, VOLCANO, GroupSource
from windlass.model.names.kueue import ELASTIC_JOB_ANNOTATION
from windlass.model.names.windlass import (
    DECLARED_DURATION_ANNOTATION,
    LAST_CHECKPOINT_ANNOTATION,
    RACK_LABEL,
    RESTART_COST_ANNOTATION,
    SIMULATED_DURATION_ANNOTATION,
)
from windlass.model.times import format_timestamp
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Play

TOPOLOGY = "kueue.x-k8s.io/podset-{}-topology"
MAX_EXEC_TIME = "kueue.x-k8s.io/max-exec-time-seconds"
PRIORITY_CLASS_LABEL = "kueue.x-k8s.io/priority-class"
EXIT_CODE = "sandbox.windlass.dev/exit-code"
GATE = "example.com/not-yet"
LARGE = 8
"""GPUs of pods that need a node for themselves, and come in small numbers."""


def pod_spec(play: Play, gpus: int, priority: str = "", mig: int = 0) -> Unstructured:
    """One container; limits equal requests, as the reference counts limits."""
    rng = play.rng
    amounts = {"cpu": "1", **({GPU: str(gpus)} if gpus else {}), **({MIG: str(mig)} if mig else {})}
    made: Unstructured = {
        "containers": [{"name": "main", "image": "train", "resources": {"requests": amounts, "limits": dict(amounts)}}],
        "restartPolicy": "Never",
        "priorityClassName": priority or draw_priority(play),
        "terminationGracePeriodSeconds": rng.choice((0, 1, 5)),
    }
    if rng.random() < 0.1:
        made["nodeSelector"] = {POOL_LABEL: rng.choice([pool.name for pool in play.spec.fleet.spec.pools])}
        play.drew("rule: node selector")
    if rng.random() < 0.15:
        made["tolerations"] = [{"key": SPECIAL_KEY, "operator": "Exists"}]
        play.drew("rule: toleration")
    return made


def draw_priority(play: Play) -> str:
    name = play.rng.choices([*PRIORITIES], weights=(4, 4, 4, 1))[0]
    play.drew(f"priority: {name}")
    return name


def add_rule(play: Play, spec: Unstructured, app: str, size: int) -> None:
    """A required rule between the pods of one app."""
    rng, key = play.rng, play.rng.choice((HOSTNAME, RACK_LABEL))
    selector = {"matchLabels": {"app": app}}
    kind = rng.choice(("anti-affinity", "spread", "affinity"))
    if kind == "spread":
        skew = rng.choice((1, 1, 2))
        rule = {"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
        spec["topologySpreadConstraints"] = [rule]
    else:
        name = "podAntiAffinity" if kind == "anti-affinity" else "podAffinity"
        term = {"labelSelector": selector, "topologyKey": key}
        spec["affinity"] = {name: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    play.drew(f"rule: {kind} by {'node' if key == HOSTNAME else 'rack'}{' in a gang' if size > 1 else ''}")


def run_seconds(play: Play, *choices: int) -> int:
    return max(1, int(play.rng.choice(choices) * play.spec.pace))


def owner_metadata(play: Play, prefix: str, queue: str, seconds: int) -> Unstructured:
    """Name, queue, and what people declare on an owner."""
    rng, notes, labels = play.rng, {}, {QUEUE: queue} if queue else {}
    if play.spec.declares_durations and rng.random() < 0.7:
        is_true = rng.random() >= play.spec.theme.false_durations
        notes[DECLARED_DURATION_ANNOTATION] = (
            f"{int(seconds * rng.uniform(1, 2)) + 10 if is_true else seconds // 3 + 1}s"
        )
        play.drew(f"declared duration: {'true' if is_true else 'false'}")
    if queue and rng.random() < play.spec.theme.limits:
        is_enough = rng.random() < 0.5
        labels[MAX_EXEC_TIME] = str(seconds * 2 + 30 if is_enough else seconds // 2 + 1)
        play.drew(f"max-exec-time-seconds: {'enough' if is_enough else 'too short'}")
    if rng.random() < 0.08:
        notes[LAST_CHECKPOINT_ANNOTATION] = format_timestamp(int(play.now()))
        play.drew("last checkpoint")
    if rng.random() < 0.08:
        notes[RESTART_COST_ANNOTATION] = "10m"
        play.drew("restart cost")
    return {"name": play.name(prefix), "namespace": "team", "labels": labels, "annotations": notes}


def template(play: Play, gpus: int, seconds: int, pods: int, queue: str) -> Unstructured:
    """A pod template, sometimes with a share of a GPU, MIG, a topology or a rule between its pods."""
    rng = play.rng
    notes = {SIMULATED_DURATION_ANNOTATION: f"{seconds}s"}
    labels: dict[str, str] = {}
    kind = rng.random()
    if kind < 0.06:
        spec = pod_spec(play, 0)
        notes["gpu-fraction"] = rng.choice(("0.25", "0.5", "0.6"))
        play.drew("request: share of a GPU")
    elif kind < 0.14 and MIG in play.spec.resources:
        spec = pod_spec(play, 0, mig=rng.choice((1, 1, 2)))
        play.drew("request: MIG instances")
    else:
        spec = pod_spec(play, gpus)
        play.drew(f"request: {gpus} GPUs")
    if play.spec.has_topology and queue and rng.random() < 0.4:
        strength = rng.choice(("required", "preferred"))
        notes[TOPOLOGY.format(strength)] = rng.choice((RACK_LABEL, HOSTNAME))
        play.drew(f"topology: {strength}")
    if pods > 1 and rng.random() < play.spec.theme.rules:
        labels["app"] = play.name("app")
        add_rule(play, spec, labels["app"], pods)
    if rng.random() < 0.05:
        notes[EXIT_CODE] = "1"
        play.drew("pod fails in the end")
    return {"metadata": {"annotations": notes, **({"labels": labels} if labels else {})}, "spec": spec}


def draw_size(play: Play) -> int:
    """GPUs of a pod: seldom more than any node has, since what is first in a strict queue and never fits blocks it."""
    sizes = play.spec.theme.sizes
    fitting = [size for size in sizes if size <= play.gpus_of_largest_node]
    return play.rng.choice(fitting if fitting and play.rng.random() < 0.95 else sizes)


def draw_job(play: Play, queue: str, gpus: int = 0) -> Unstructured:
    """`gpus`: of a pod; 0: drawn."""
    rng = play.rng
    seconds, gpus = run_seconds(play, *play.spec.theme.seconds), gpus or draw_size(play)
    pods = rng.choice(play.spec.theme.pods if gpus < LARGE else (1, 1, 1, 2))
    made = template(play, gpus, seconds, pods, queue)
    metadata = owner_metadata(play, "job" if queue else "free", queue, seconds)
    if queue and pods > 1 and rng.random() < play.spec.theme.partial:
        metadata["annotations"]["kueue.x-k8s.io/job-min-parallelism"] = str(rng.randint(1, pods - 1))
        play.drew("partial admission")
    elif queue and rng.random() < 0.12:
        metadata["annotations"][ELASTIC_JOB_ANNOTATION] = "true"
        play.drew("elastic Job")
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "suspend": bool(queue) and rng.random() < 0.8,
            "parallelism": pods,
            "completions": pods + rng.choice((0, 0, 2, 4, 8)),
            "backoffLimit": 100,
            "template": made,
        },
    }


def draw_pod(play: Play, name: str, spec: Unstructured, **metadata: Any) -> Unstructured:
    seconds = run_seconds(play, 30, 100, 600)
    annotations = {SIMULATED_DURATION_ANNOTATION: f"{seconds}s", **metadata.pop("annotations", {})}
    meta = {"name": name, "namespace": "team", "annotations": annotations, **metadata}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


# Owners of other kinds: their controllers are played by `owner_controller`


def draw_owner(play: Play, queue: str) -> Unstructured:
    kind = play.rng.choice([*OWNERS])
    seconds, workers = run_seconds(play, 60, 200), play.rng.randint(1, 3)
    version, spec = OWNERS[kind](play, seconds, workers, queue)
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": owner_metadata(play, kind.lower(), queue, seconds),
        "spec": spec,
    }


def _pytorch(play: Play, seconds: int, workers: int, queue: str) -> tuple[str, Unstructured]:
    gpus = play.rng.choice((1, 2))
    specs = {
        role: {"replicas": count, "template": template(play, gpus, seconds, count, queue)}
        for role, count in (("Master", 1), ("Worker", workers))
    }
    return "kubeflow.org/v1", {"runPolicy": {"suspend": bool(queue)}, "pytorchReplicaSpecs": specs}


def _jobset(play: Play, seconds: int, workers: int, queue: str) -> tuple[str, Unstructured]:
    gpus = play.rng.choice((1, 4))
    jobs = [
        {
            "name": role,
            "replicas": 1,
            "template": {"spec": {"parallelism": count, "template": template(play, gpus, seconds, count, queue)}},
        }
        for role, count in (("driver", 1), ("workers", workers))
    ]
    return "jobset.x-k8s.io/v1alpha2", {"suspend": bool(queue), "replicatedJobs": jobs}


def _ray(play: Play, seconds: int, workers: int, queue: str) -> tuple[str, Unstructured]:
    groups = [{"groupName": "gpus", "replicas": workers, "template": template(play, 1, seconds, workers, queue)}]
    head = {"template": template(play, 1, seconds, 1, queue)}
    return "ray.io/v1", {"suspend": bool(queue), "headGroupSpec": head, "workerGroupSpecs": groups}


OWNERS: dict[str, Callable[[Play, int, int, str], tuple[str, Unstructured]]] = {
    "PyTorchJob": _pytorch,
    "JobSet": _jobset,
    "RayCluster": _ray,
}


# Groups of pods


def draw_group(play: Play) -> list[Unstructured]:
    """Pods that say in one of the known forms that they start together, and their PodGroup where the form has one."""
    rng, name, size = play.rng, play.name("group"), play.rng.randint(2, 5)
    form = rng.choice(play.group_forms)  # keys of GROUP_FORMS_DRAWN
    play.drew(f"group form: {form}")
    priority, gpus = draw_priority(play), rng.choice((1, 1, 2, 4))
    queue = rng.choice(play.spec.queues) if form == KUEUE_GROUP or rng.random() < 0.3 else ""
    marks = GROUP_FORMS_DRAWN[form](name, size, queue)
    labels = {**({QUEUE: queue} if queue else {}), **marks.labels}
    spec = {**pod_spec(play, gpus, priority), **marks.spec}
    if rng.random() < play.spec.theme.rules + 0.1:
        labels["app"] = name
        add_rule(play, spec, name, size)
    pods = [
        draw_pod(play, f"{name}-{number}", {**spec}, labels=labels, annotations=marks.annotations)
        for number in range(size)
    ]
    return [*marks.objects, *pods]


class GroupMarks(NamedTuple):
    """What makes pods a group: what each of them has, and the PodGroup where the form has one."""

    labels: dict[str, str]
    annotations: dict[str, str]
    spec: Unstructured
    objects: list[Unstructured]


def _kueue_group(name: str, size: int, queue: str) -> GroupMarks:
    labels = {"kueue.x-k8s.io/pod-group-name": name}
    return GroupMarks(labels, {"kueue.x-k8s.io/pod-group-total-count": str(size)}, {}, [])


def _coscheduling_group(name: str, size: int, queue: str) -> GroupMarks:
    group = _pod_group("scheduling.x-k8s.io/v1alpha1", name, {"minMember": size}, queue)
    return GroupMarks({"scheduling.x-k8s.io/pod-group": name}, {}, {}, [group])


def _volcano_group(name: str, size: int, queue: str) -> GroupMarks:
    group = _pod_group("scheduling.volcano.sh/v1beta1", name, {"minMember": size}, queue)
    return GroupMarks({}, {"scheduling.k8s.io/group-name": name}, {}, [group])


def _native_group(name: str, size: int, queue: str) -> GroupMarks:
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}}
    group = _pod_group("scheduling.k8s.io/v1alpha2", name, policy, queue)
    return GroupMarks({}, {}, {"schedulingGroup": {"podGroupName": name}}, [group])


GROUP_FORMS_DRAWN: dict[GroupSource, Callable[[str, int, str], GroupMarks]] = {
    KUEUE_GROUP: _kueue_group,
    COSCHEDULING: _coscheduling_group,
    VOLCANO: _volcano_group,
    NATIVE: _native_group,
}
"""Source of `model.group_membership` → its group of a name, a size and a queue. Another one changes what seeds draw."""


def draw_large_gang(play: Play, empty: list[Unstructured]) -> list[Unstructured]:
    """Pods of two shapes that fill these empty nodes to the last CPU, and only if every node takes some of both."""
    name, priority = play.name("crowd"), draw_priority(play)
    large = sum(_cpus(node) // 32 for node in empty)
    small = sum((_cpus(node) - 5 * (_cpus(node) // 32)) // 3 for node in empty)
    play.drew("gang of two shapes" + (" and over 32 pods" if small + large > 32 else ""))
    seconds = {SIMULATED_DURATION_ANNOTATION: f"{run_seconds(play, 30, 60)}s"}
    made = [_pod_group("scheduling.volcano.sh/v1beta1", name, {"minMember": small + large}, "")]
    for number in range(small + large):
        spec = pod_spec(play, 0, priority)
        for field in ("nodeSelector", "tolerations"):
            spec.pop(field, None)
        amounts = {"cpu": "3" if number < small else "5"}
        spec["containers"][0]["resources"] = {"requests": amounts, "limits": dict(amounts)}
        notes = {"scheduling.k8s.io/group-name": name, **seconds}
        made.append(draw_pod(play, f"{name}-{number}", spec, annotations=notes))
    return made


def _cpus(node: Unstructured) -> int:
    return int(node["status"]["allocatable"]["cpu"])


def _pod_group(version: str, name: str, spec: Unstructured, queue: str) -> Unstructured:
    meta = {"name": name, "namespace": "team", "labels": {QUEUE: queue} if queue else {}}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}
