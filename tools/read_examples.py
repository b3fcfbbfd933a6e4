"""Tries Windlass on other projects' example manifests: which of them are understood, refused clearly, or misread.

    python tools/read_examples.py FOLDER… [--all]

Every folder is a project. A file with objects that make pods is given a cluster made to fit it, then one GPU less, then
one node less. The pods that must start are counted by the walk over templates of `windlass check`, which has no code in
common with the engine's readers. The examples are read and tried, never copied into the project.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from windlass.diagnose.check.manifest import Manifest, PodView, read_manifests
from windlass.diagnose.check.pod_counts import pod_count
from windlass.dump.cluster_loader import load_cluster
from windlass.dump.files import list_files
from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.model.errors import InputError
from windlass.model.names.kubernetes import HOSTNAME_LABEL
from windlass.model.names.kueue import TOPOLOGY_PREFIX
from windlass.model.owners.unknown_kinds import makes_pods, not_implemented
from windlass.model.plan import Plan
from windlass.model.queue_names import KAI_PREFIX, VOLCANO_PREFIX, named_queue
from windlass.model.requests import is_extended_resource, pod_requests
from windlass.planner import plan_objects

NOW = 1_800_000_000
MEMORY_LABEL = "nvidia.com/gpu.memory"
MAX_PODS = 400
PLACEHOLDER = re.compile(r":\s+[\"']?(\$\{?\w|PLACEHOLDER)")
"""A value that begins with a shell variable, or says that it is to be replaced."""
ROOM = {"cpu": "4000", "memory": "40Ti", "ephemeral-storage": "40Ti", "pods": "500"}
UNDERSTOOD, REFUSED, WRONGLY, MISREAD = "understood", "refused clearly", "refused wrongly", "misread"
VERDICTS = (UNDERSTOOD, REFUSED, WRONGLY, MISREAD)
CLEAR_CODES = frozenset(
    ("NOT_IMPLEMENTED", "KUEUE_QUEUE_MISSING", "GANG_INCOMPLETE", "DRA_CLAIM_PENDING", "JOB_SUSPENDED")
) | {"CLAIM_MISSING", "INVALID_OBJECT", "REQUESTS_NE_LIMITS", "KUEUE_QUOTA_MISCONFIGURED"}
CLEAR_WORDS = ("unknown kind", "not implemented", "is a template")
TEMPLATE_KINDS = ("ClusterTrainingRuntime", "TrainingRuntime", "PodTemplate", "Workload")
"""Kinds whose templates make no pods by themselves."""
Tree = dict[str, Any]


class Example(NamedTuple):
    file: Path
    verdict: str
    why: str


class Expected(NamedTuple):
    """A pod that the file makes, and how many of it."""

    view: PodView
    count: int
    beside: int = 0
    """Pods that its owner makes without a template, and that ask for no devices."""


def judge(file: Path) -> Example | None:
    """None where the file makes no pods, or is no manifest."""
    try:
        manifests = read_manifests([file])
    except InputError:
        return None  # a template of Helm or kustomize
    expected = [
        Expected(view, pod_count(manifest, view), _submitter(manifest, at))
        for manifest in manifests
        if manifest.kind not in (*TEMPLATE_KINDS, "DaemonSet")
        for at, view in enumerate(manifest.pods)
    ]
    expected += [found for manifest in manifests for found in _of_nim(manifest)]
    kinds = [(manifest.api_version, manifest.kind) for manifest in manifests]
    is_planned = bool(expected) and all(version.startswith("apps.nvidia.com/") for version, _ in kinds)
    named = [kind for kind in kinds if (makes_pods(*kind) or not_implemented(*kind)) and not is_planned]
    if not expected and not named:
        return None
    if "invalid" in str(file):
        return None  # its project refuses it, too
    verdict, why = _verdict(file, manifests, expected, bool(named))
    if verdict == WRONGLY and PLACEHOLDER.search(file.read_text(errors="replace")):
        return None  # a template: `envsubst` or its like has to fill in the values first
    return Example(file, verdict, why)


def _of_nim(manifest: Manifest) -> Iterator[Expected]:
    """The NIM operator's kinds have no pod templates: their pods are counted from the fields of the services."""
    spec = manifest.data.get("spec") or {}
    if not manifest.api_version.startswith("apps.nvidia.com/"):
        return
    parts = [spec] if manifest.kind in ("NIMService", "NIMCache") else []
    if manifest.kind == "NIMPipeline":
        parts = [part["spec"] for part in spec["services"] if part.get("enabled", True)]
    for part in parts:
        container = {"name": "c", "image": "i", "resources": part.get("resources") or {}}
        places = {name: part[name] for name in ("nodeSelector", "tolerations") if part.get(name)}
        claims = [{"name": "c", "resourceClaimName": "c"}] if part.get("draResources") else []
        template = {"spec": {**places, "containers": [container], **({"resourceClaims": claims} if claims else {})}}
        size = part.get("multiNode", {}).get("parallelism", {}).get("pipeline", 1)
        replicas = part.get("replicas", 1)
        if (part.get("scale") or {}).get("enabled"):
            replicas = part["scale"]["hpa"].get("minReplicas", 1)
        yield Expected(PodView("spec", template, manifest.name, manifest.namespace), replicas * size)


def _submitter(manifest: Manifest, template: int) -> int:
    """The pod that submits a RayJob has no template, as a rule; it stands beside the head, which comes first."""
    spec = manifest.data.get("spec") or {}
    is_given = "submitterPodTemplate" in spec or spec.get("submissionMode", "K8sJobMode") != "K8sJobMode"
    return int(manifest.kind == "RayJob" and template == 0 and not is_given)


def _verdict(file: Path, manifests: Sequence[Manifest], expected: list[Expected], is_named: bool) -> tuple[str, str]:
    wanted = sum(pods.count + pods.beside for pods in expected)
    if wanted > MAX_PODS:
        return REFUSED, f"{wanted} pods are more than this tool tries"
    nodes = [node for shape, pods in enumerate(expected) for node in _nodes_for(pods, shape)]
    try:
        plan, notes = _plan(file, manifests, nodes)
    except InputError as error:
        return WRONGLY, str(error)
    started, codes = _started(plan), {hold.verdict.code for hold in plan.holds}
    if any(view.spec.get("resourceClaims") for manifest in manifests for view in manifest.pods) and started == wanted:
        return MISREAD, "pods with resource claims start"
    if started < wanted or is_named:
        clear = codes & CLEAR_CODES or any(word in note for note in notes for word in CLEAR_WORDS)
        said = "; ".join(hold.verdict.detail for hold in plan.holds) or "; ".join(notes)
        return (REFUSED if clear else MISREAD), f"{started} of {wanted} start: {said[:200]}"
    if started > wanted:
        return MISREAD, f"{started} start, and {wanted} are made"
    if any(view.pod is not None and "gpu-fraction" in view.pod.metadata.annotations for view in _views(manifests)):
        return UNDERSTOOD, ""  # shares may go together on fewer GPUs
    for less, tried in (("one GPU", _one_gpu_less(nodes)), ("one node", _one_node_less(nodes))):
        if tried is not None and _started(_plan(file, manifests, tried)[0]) >= wanted:
            return MISREAD, f"all {wanted} start with {less} less"
    return UNDERSTOOD, ""


def _views(manifests: Sequence[Manifest]) -> list[PodView]:
    return [view for manifest in manifests for view in manifest.pods]


def _plan(file: Path, manifests: Sequence[Manifest], nodes: Iterable[Tree]) -> tuple[Plan, list[str]]:
    loaded = load_cluster(None, [file])
    made = (*nodes, *_queues(manifests), *_claims(manifests), *_priority_classes(manifests))
    added = [decode_object(tree) for tree in made]
    # What the example has itself counts.
    plan, notes = plan_objects([*added, *loaded.objects], Settings(), NOW)
    return plan, [*loaded.notes, *notes]


def _started(plan: Plan) -> int:
    """Pods that exist are bound; of an owner without pods, the plan says how many go where."""
    owners = [admit for admit in plan.admits if admit.kind not in ("Pod", "PodGroup")]
    return len(plan.binds) + sum(sum(part.nodes.values()) for admit in owners for part in admit.pod_sets)


def _nodes_for(pods: Expected, shape: int) -> list[Tree]:
    """A node for each pod, with just the devices that it asks for and the labels that it selects by."""
    devices: dict[str, str] = {}
    labels: dict[str, str] = {"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}
    pod = pods.view.pod
    if pod is not None:
        try:
            devices = {name: str(amount) for name, amount in pod_requests(pod).items() if _is_device(name)}
        except InputError:
            devices = {}
        if any(name in pod.metadata.annotations for name in ("gpu-fraction", "gpu-memory")):
            devices = {"nvidia.com/gpu": pod.metadata.annotations.get("gpu-fraction-num-devices", "1")}
        labels |= _labels_of(pod, pods.view.template)
    return [_node(f"n-{shape}-{index}", devices, labels) for index in range(pods.count)]


def _is_device(name: str) -> bool:
    return is_extended_resource(name) or name.startswith("hugepages-")


def _labels_of(pod: Any, template: Mapping[str, Any]) -> dict[str, str]:
    labels = dict(pod.spec.node_selector)
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    for term in required.node_selector_terms[:1] if required is not None else ():
        for expression in term.match_expressions:
            if expression.operator in ("In", "Exists"):
                labels[expression.key] = expression.values[0] if expression.values else "x"
    for key, value in pod.metadata.annotations.items():
        if key.endswith(("-topology", "-placement")) and "/" in value:
            labels[value] = "d"
    return labels


def _node(name: str, devices: Mapping[str, str], labels: Mapping[str, str]) -> Tree:
    room = {**ROOM, **devices}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, MEMORY_LABEL: "81920", **labels}},
        "status": {"capacity": room, "allocatable": room},
    }


def _one_gpu_less(nodes: list[Tree]) -> list[Tree] | None:
    for at, node in enumerate(nodes):
        for name, amount in node["status"]["allocatable"].items():
            if is_extended_resource(name) and amount != "0":
                less = {**node["status"]["allocatable"], name: str(int(amount) - 1)}
                changed = {**node, "status": {"capacity": less, "allocatable": less}}
                return [*nodes[:at], changed, *nodes[at + 1 :]]
    return None


def _one_node_less(nodes: list[Tree]) -> list[Tree] | None:
    """Without a node that has devices: the others have room for any number of pods without."""
    at = next((at for at, node in enumerate(nodes) if len(node["status"]["allocatable"]) > len(ROOM)), None)
    return None if at is None else [*nodes[:at], *nodes[at + 1 :]]


def _queues(manifests: Sequence[Manifest]) -> list[Tree]:
    """The queues that the example names, without limits; those that it has itself replace them."""
    found: set[tuple[str, str]] = set()
    for manifest in manifests:
        places = [manifest.data, *(view.template for view in manifest.pods)]
        for place in places:
            metadata = place.get("metadata") or {}
            queue = named_queue(metadata.get("labels") or {}, metadata.get("annotations") or {})
            found |= {(manifest.namespace, queue)} if queue else set()
        spec = manifest.data.get("spec") or {}
        if manifest.api_version.startswith("batch.volcano.sh/") and spec.get("queue"):
            found.add((manifest.namespace, f"{VOLCANO_PREFIX}{spec['queue']}"))
        if manifest.api_version.startswith("kueue.x-k8s.io/") and spec.get("queueName"):
            found.add((manifest.namespace, spec["queueName"]))
    return [tree for namespace, queue in sorted(found) for tree in _queue(namespace, queue, manifests)]


def _queue(namespace: str, queue: str, manifests: Sequence[Manifest]) -> list[Tree]:
    if queue.startswith(KAI_PREFIX):
        free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
        spec: Tree = {"resources": {"gpu": free, "cpu": free, "memory": free}}
        return [_object("scheduling.run.ai/v2", "Queue", queue.removeprefix(KAI_PREFIX), spec)]
    if queue.startswith(VOLCANO_PREFIX):
        return [_object("scheduling.volcano.sh/v1beta1", "Queue", queue.removeprefix(VOLCANO_PREFIX), {"weight": 1})]
    if any(manifest.kind == "LocalQueue" for manifest in manifests):
        return []
    asked = {"cpu", "memory"}
    views = _views(manifests)
    for view in views:
        for _, container in view.containers():
            resources = container.get("resources") or {}
            asked |= {*(resources.get("requests") or ()), *(resources.get("limits") or ())}
    cells = [{"name": name, "nominalQuota": "1P"} for name in sorted(asked - {"pods"})]
    group = {"coveredResources": [cell["name"] for cell in cells], "flavors": [{"name": "any", "resources": cells}]}
    api = "kueue.x-k8s.io/v1beta2"
    local = _object(api, "LocalQueue", queue, {"clusterQueue": "any"})
    local["metadata"]["namespace"] = namespace
    levels = sorted({level for view in views for level in _topology_levels(view)}, key=_width)
    tree = {"levels": [{"nodeLabel": level} for level in levels]}
    flavor = _object(api, "ResourceFlavor", "any", {"topologyName": "any"} if levels else {})
    topology = [_object(api, "Topology", "any", tree)] if levels else []
    return [
        *topology,
        flavor,
        _object(api, "ClusterQueue", "any", {"namespaceSelector": {}, "resourceGroups": [group]}),
        local,
    ]


def _topology_levels(view: PodView) -> set[str]:
    annotations = (view.template.get("metadata") or {}).get("annotations") or {}
    found = {value for key, value in annotations.items() if key.startswith(TOPOLOGY_PREFIX) and "/" in str(value)}
    is_asked = any(key.startswith(TOPOLOGY_PREFIX) for key in annotations)
    return found | {HOSTNAME_LABEL} if is_asked else set()


def _width(level: str) -> tuple[bool, bool, str]:
    """Blocks are wider than racks, and a node is the narrowest."""
    return level == HOSTNAME_LABEL, "block" not in level, level


def _claims(manifests: Sequence[Manifest]) -> list[Tree]:
    """Volumes for the claims that the pods name and the file doesn't have."""
    made: list[Tree] = []
    for manifest in manifests:
        for view in manifest.pods:
            for volume in view.spec.get("volumes") or ():
                name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
                if name:
                    claim = _object("v1", "PersistentVolumeClaim", name, {"volumeName": f"pv-{name}"})
                    claim["metadata"] |= {
                        "namespace": manifest.namespace,
                        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
                    }
                    claim["status"] = {"phase": "Bound"}
                    volume_spec = {"capacity": {"storage": "1Ti"}, "claimRef": {"name": name}}
                    made += [claim, _object("v1", "PersistentVolume", f"pv-{name}", volume_spec)]
    named = {(manifest.data.get("spec") or {}).get("storageClassName") or "any" for manifest in manifests}
    later = {"provisioner": "example.com/any", "volumeBindingMode": "WaitForFirstConsumer"}
    classes = [{**_object("storage.k8s.io/v1", "StorageClass", name, {}), **later} for name in sorted(named | {"any"})]
    classes[0]["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    return [*made, *(tree for tree in classes if tree["metadata"]["name"])]


def _priority_classes(manifests: Sequence[Manifest]) -> list[Tree]:
    """The WorkloadPriorityClasses that labels name."""
    label = "kueue.x-k8s.io/priority-class"
    places = [place for manifest in manifests for place in (manifest.data, *(view.template for view in manifest.pods))]
    named = {((place.get("metadata") or {}).get("labels") or {}).get(label) for place in places} - {None}
    return [{**_object("kueue.x-k8s.io/v1beta1", "WorkloadPriorityClass", name, {}), "value": 1} for name in named]


def _object(api: str, kind: str, name: str, spec: Tree) -> Tree:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": spec}


def main(arguments: Sequence[str]) -> int:
    folders = [Path(argument) for argument in arguments if not argument.startswith("--")]
    print(f"| project | tried | {' | '.join(VERDICTS)} |")
    print(f"| --- | ---: |{' ---: |' * len(VERDICTS)}")
    all_counts: Counter[str] = Counter()
    for folder in folders:
        try:
            files = list_files(folder)
        except InputError as error:
            print(error, file=sys.stderr)
            return 2
        judged = [example for file in files if (example := judge(file)) is not None]
        counts = Counter(example.verdict for example in judged)
        all_counts += counts
        numbers = " | ".join(str(counts[verdict]) for verdict in VERDICTS)
        print(f"| {folder.name} | {len(judged)} | {numbers} |", flush=True)
        for example in judged:
            if example.verdict in (WRONGLY, MISREAD) or "--all" in arguments:
                print(f"  {example.verdict}: {example.file}: {example.why}", file=sys.stderr)
    total = sum(all_counts.values())
    print(f"| all | {total} | {' | '.join(str(all_counts[verdict]) for verdict in VERDICTS)} |")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
