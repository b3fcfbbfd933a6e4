"""`why` and the engine can't disagree: no cause for what can be placed, and every named cause is real.

A cause is real if taking it away, alone or with the causes that are said to contribute, makes a node take the pod.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.diagnose.test_patches import applied

from windlass.diagnose.evidence import Evidence
from windlass.diagnose.fit import FitChecker
from windlass.diagnose.why import why
from windlass.dump.raw_objects import ObjectHeader, RawObject
from windlass.model.meta import ObjectMeta
from windlass.model.pod import Pod
from windlass.model.unstructured import Unstructured

TAINTS = [
    {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"},
    {"key": "team", "value": "a", "effect": "NoExecute"},
    {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"},
]
ZONES = st.sampled_from(["a", "b"])


@st.composite
def nodes(draw: st.DrawFn, number: int) -> Unstructured:
    gpus = draw(st.sampled_from([0, 0, 2, 4, 8]))
    amounts = {
        "cpu": str(draw(st.sampled_from([4, 16]))),
        "memory": "64Gi",
        "pods": str(draw(st.sampled_from([3, 110]))),
    }
    capacity = dict(amounts)
    if gpus:
        amounts["nvidia.com/gpu"] = str(gpus - draw(st.sampled_from([0, 0, 0, 1])))
        capacity["nvidia.com/gpu"] = str(gpus)
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": f"n{number}",
            "labels": {"zone": draw(ZONES), "kubernetes.io/hostname": f"n{number}"},
        },
        "spec": {
            "unschedulable": draw(st.sampled_from([False, False, False, True])),
            "taints": draw(st.lists(st.sampled_from(TAINTS), max_size=1)),
        },
        "status": {"capacity": capacity, "allocatable": amounts},
    }


@st.composite
def pods(draw: st.DrawFn, name: str, node: str = "") -> Unstructured:
    limits = {"cpu": str(draw(st.sampled_from([1, 2, 8]))), "memory": "1Gi"}
    gpus = draw(st.sampled_from([0, 1, 2, 4, 8]))
    if gpus:
        limits["nvidia.com/gpu"] = str(gpus)
    spec: Unstructured = {"containers": [{"name": "c", "resources": {"limits": limits}}]}
    if node:
        spec["nodeName"] = node
    if draw(st.booleans()):
        spec["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    if draw(st.sampled_from([False, False, True])):
        spec["nodeSelector"] = {"zone": draw(ZONES)}
    status = {"phase": "Running" if node else "Pending"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "x"},
        "spec": spec,
        "status": status,
    }


@st.composite
def clusters(draw: st.DrawFn) -> list[Unstructured]:
    count = draw(st.integers(1, 4))
    objects: list[Unstructured] = [draw(nodes(number)) for number in range(count)]
    for number in range(draw(st.integers(0, 5))):
        objects.append(draw(pods(f"r{number}", f"n{draw(st.integers(0, count - 1))}")))
    return [*objects, draw(pods("asked"))]


def evidence_of(objects: list[Unstructured]) -> Evidence:
    evidence = Evidence()
    for tree in objects:
        meta = tree["metadata"]
        header = ObjectHeader(
            api_version="v1",
            kind=tree["kind"],
            metadata=ObjectMeta(name=meta["name"], namespace=meta.get("namespace", ""), labels=meta.get("labels", {})),
        )
        evidence.add(RawObject(header, "", tree))
    return evidence


def feasible(objects: list[Unstructured]) -> bool:
    evidence = evidence_of(objects)
    asked = evidence.pods["x", "asked"].decoded
    assert isinstance(asked, Pod)
    return bool(FitChecker(evidence.objects, 0).feasible_nodes(asked))


def without(objects: list[Unstructured], codes: set[str]) -> list[Unstructured]:
    """The cluster in which these causes do not exist."""
    asked = objects[-1]
    spec = dict(asked["spec"])
    others = list(objects[:-1])
    if "TAINT_NOT_TOLERATED" in codes:
        spec["tolerations"] = [
            *spec.get("tolerations", []),
            {"key": "nvidia.com/gpu", "operator": "Exists"},
            {"key": "team", "operator": "Exists"},
        ]
    if "SELECTOR_MISMATCH" in codes:
        spec.pop("nodeSelector", None)
    if "NODE_UNSCHEDULABLE" in codes:
        spec["tolerations"] = [
            *spec.get("tolerations", []),
            {"key": "node.kubernetes.io/unreachable", "operator": "Exists"},
        ]
        others = [
            {**other_pod, "spec": {**other_pod["spec"], "unschedulable": False}}
            if other_pod["kind"] == "Node"
            else other_pod
            for other_pod in others
        ]
    if codes & {
        "GPU_FULL",
        "GPU_FRAGMENTED",
        "CPU_MEM_INSUFFICIENT",
        "GPU_STRANDED",
        "POD_COUNT_LIMIT",
        "DEVICE_UNHEALTHY",
        "RESOURCE_NAME_MISMATCH",
        "DEVICE_PLUGIN_ABSENT",
    }:
        others = [other_pod for other_pod in others if other_pod["kind"] == "Node"]
    if codes & {
        "REQUEST_EXCEEDS_CLUSTER",
        "RESOURCE_NAME_MISMATCH",
        "CPU_MEM_INSUFFICIENT",
        "DEVICE_UNHEALTHY",
        "POD_COUNT_LIMIT",
        "DEVICE_PLUGIN_ABSENT",
    }:
        others = [_larger(other_pod) if other_pod["kind"] == "Node" else other_pod for other_pod in others]
    return [*others, {**asked, "spec": spec}]


def _larger(node: Unstructured) -> Unstructured:
    """As large as anybody could ask."""
    amounts = {"cpu": "999", "memory": "999Gi", "pods": "999", "nvidia.com/gpu": "16"}
    return {**node, "status": {"capacity": amounts, "allocatable": amounts}}


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_why_names_a_cause_exactly_where_the_engine_finds_no_node(objects: list[Unstructured]) -> None:
    code = why(evidence_of(objects), "pod/asked", "x", 0).code
    assert (code == "NONE") == feasible(objects), code


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_the_named_cause_is_real(objects: list[Unstructured]) -> None:
    found = why(evidence_of(objects), "pod/asked", "x", 0)
    if found.code == "NONE":
        return
    assert feasible(without(objects, {found.code, *found.contributing})), found


@settings(max_examples=300, deadline=None)
@given(clusters())
def test_a_patch_that_is_said_to_help_helps(objects: list[Unstructured]) -> None:
    for patch in why(evidence_of(objects), "pod/asked", "x", 0).patches:
        assert feasible(applied(objects, patch)) == patch.runs_after
