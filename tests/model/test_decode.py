"""Objects in and out: strict, null-tolerant as Kubernetes is, and never any error but one that names the field."""

from __future__ import annotations

import copy
import datetime
import json
import re
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.trees import places

from windlass.model.codec import (
    ObjectList,
    PartialObject,
    Unreadable,
    decode_each,
    decode_object,
    encode_object,
)
from windlass.model.errors import InputError
from windlass.model.fleet import Fleet, expand_fleet
from windlass.model.gpu import gpu_request, node_devices
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.priority import PriorityClass
from windlass.model.requests import node_quantities, pod_requests
from windlass.model.volume import Namespace, PersistentVolume, PersistentVolumeClaim, StorageClass

EXPRESSION = {"key": "k", "operator": "In", "values": ["a"]}
NODE_TERM = {"matchExpressions": [EXPRESSION], "matchFields": [{**EXPRESSION, "key": "metadata.name"}]}
POD_TERM = {
    "topologyKey": "zone",
    "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [EXPRESSION]},
}
RESOURCES = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"nvidia.com/gpu": 1, "memory": "2Gi"}}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "team", "labels": {"a": "b"}, "annotations": {"note": "x"}},
    "spec": {
        "containers": [{"name": "c", "resources": RESOURCES, "ports": [{"hostPort": 80}]}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "nodeSelector": {"pool": "x"},
        "priority": 5,
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [NODE_TERM]},
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "preference": NODE_TERM}],
            },
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [POD_TERM],
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": POD_TERM}],
            },
        },
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "minDomains": 2, "labelSelector": {}}],
        "overhead": {"cpu": "10m"},
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
    },
}
NODE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "n",
        "labels": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.count": "2"},
        "annotations": {
            "windlass.dev/devices-layout": '[{"model":"A","memory":1,"count":2}]',
            "windlass.dev/unhealthy-devices": "1",
        },
    },
    "spec": {"taints": [{"key": "gpu", "effect": "NoSchedule"}]},
    "status": {
        "capacity": {"cpu": 8, "nvidia.com/gpu": 2},
        "allocatable": {"cpu": "7500m", "nvidia.com/gpu": "1"},
    },
}
FLEET: dict[str, Any] = {
    "apiVersion": "windlass.dev/v1",
    "kind": "Fleet",
    "metadata": {"name": "lab"},
    "spec": {
        "pools": [
            {
                "name": "a",
                "count": 2,
                "cpu": 64,
                "gpus": [{"model": "H100", "count": 4, "mig": ["3g.40gb", "4g.40gb"], "islands": 2}],
                "labels": {"team": "x"},
                "faults": [{"node": 1, "devices": [0]}],
            },
            {
                "name": "b",
                "gpus": [{"model": "Q", "count": 1, "memory": "24Gi"}],
                "sharing": {"strategy": "mps", "replicas": 2},
            },
        ]
    },
}
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "pv"},
    "spec": {
        "nodeAffinity": {"required": {"nodeSelectorTerms": [NODE_TERM]}},
        "accessModes": ["ReadWriteOnce"],
    },
}
CLASS: dict[str, Any] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "fast"},
    "volumeBindingMode": "WaitForFirstConsumer",
}
EXAMPLES = [POD, NODE, FLEET, VOLUME, CLASS, {"kind": "PodList", "items": [POD, POD]}]


@pytest.mark.parametrize(
    ("tree", "struct"),
    [
        (POD, Pod),
        (NODE, Node),
        (FLEET, Fleet),
        (VOLUME, PersistentVolume),
        (CLASS, StorageClass),
        ({"kind": "PersistentVolumeClaim", "metadata": {"name": "c"}}, PersistentVolumeClaim),
        ({"kind": "Namespace", "metadata": {"name": "c"}}, Namespace),
        ({"kind": "PriorityClass", "value": 1000, "metadata": {"name": "c"}}, PriorityClass),
        ({"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "c"}}, PartialObject),
        ({"apiVersion": "fleet.example.com/v1", "kind": "Fleet", "spec": {"x": 1}}, PartialObject),
        ({"apiVersion": "v1", "kind": "List", "items": []}, ObjectList),
    ],
)
def test_every_kind_goes_in_and_out_unchanged(tree: dict[str, Any], struct: type) -> None:
    thing = decode_object(json.dumps(tree).encode())
    assert type(thing) is struct
    assert decode_object(tree) == thing
    assert decode_object(encode_object(thing)) == thing


def test_fields_arrive() -> None:
    pod = decode_object(POD)
    assert isinstance(pod, Pod)
    assert pod.key == "team/p"
    assert pod.spec.init_containers[0].restart_policy == "Always"
    assert pod_requests(pod) == {"cpu": 1110, "memory": 2**30, "nvidia.com/gpu": 1, "pods": 1}


def test_null_is_absent_and_empty_in_maps() -> None:
    tree = copy.deepcopy(POD)
    tree["metadata"] |= {"creationTimestamp": None, "labels": {"role": None}, "annotations": None}
    tree["spec"] |= {"affinity": None, "nodeName": None, "overhead": {"cpu": None}, "initContainers": None}
    tree["spec"]["containers"][0]["ports"] = [None]
    for raw in (tree, json.dumps(tree).encode()):
        pod = decode_object(raw)
        assert isinstance(pod, Pod)
        assert pod.metadata.labels == {"role": ""}
        assert (pod.spec.node_name, pod.spec.affinity, pod.metadata.annotations) == ("", None, {})
        assert pod_requests(pod)["cpu"] == 1000


def test_a_date_that_yaml_made_an_object_is_text_again() -> None:
    tree = {"kind": "Namespace", "metadata": {"name": "x", "labels": {"since": datetime.date(2024, 5, 1)}}}
    namespace = decode_object(tree)
    assert isinstance(namespace, Namespace)
    assert namespace.metadata.labels == {"since": "2024-05-01"}


def changed(tree: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy with another value at a path such as `spec.containers[0].name`."""
    tree = json.loads(json.dumps(tree))
    *way, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    at: Any = tree
    for step in way:
        at = at[step]
    at[last] = value
    return tree


SPREAD = "spec.topologySpreadConstraints[0]"
ANTI = "spec.affinity.podAntiAffinity"
REQUIRED = f"{ANTI}.requiredDuringSchedulingIgnoredDuringExecution[0]"
PREFERRED = f"{ANTI}.preferredDuringSchedulingIgnoredDuringExecution[0]"


@pytest.mark.parametrize(
    ("tree", "path", "value", "words"),
    [
        (POD, "metadata.labels.a", 8, "expected a string, found 8"),
        (POD, "metadata.labels.a", True, "expected a string, found true"),
        (POD, "spec.containers", {}, "expected a list, found a mapping"),
        (POD, "spec.containers[0]", "x", "expected a mapping, found 'x'"),
        (
            POD,
            "spec.containers[0].resources.limits.memory",
            [1],
            "expected a string or a number, found a list",
        ),
        (POD, "spec.containers[0].ports[0].hostPort", 70000, "out of range"),
        (POD, "spec.containers[0].ports[0].protocol", "ICMP", "unknown value 'ICMP'"),
        (POD, "spec.priority", "high", "expected a whole number, found 'high'"),
        (POD, "spec.priority", 2**40, "out of range"),
        (POD, "spec.hostNetwork", "yes", "expected true or false"),
        (POD, "spec", [], "expected a mapping, found a list"),
        (POD, "spec.tolerations[0].operator", "Is", "unknown operator"),
        (POD, f"{SPREAD}.maxSkew", 0, "out of range"),
        (POD, f"{SPREAD}.whenUnsatisfiable", "Perhaps", "unknown value"),
        (POD, f"{SPREAD}.topologyKey", "", "must not be empty"),
        (POD, f"{SPREAD}.minDomains", 0, "out of range"),
        (POD, f"{SPREAD}.nodeTaintsPolicy", "Perhaps", "unknown value"),
        (POD, f"{REQUIRED}.topologyKey", "", "must not be empty"),
        (POD, f"{REQUIRED}.labelSelector.matchExpressions[0].operator", "Is", "unknown operator"),
        (POD, f"{PREFERRED}.weight", 0, "out of range"),
        (POD, f"{PREFERRED}.podAffinityTerm.topologyKey", "", "must not be empty"),
        (POD, "metadata.name", "", "needs a name"),
        (NODE, "metadata.name", "", "needs a name"),
        (NODE, "spec.taints[0].effect", "x", "unknown taint effect"),
        (VOLUME, "spec.nodeAffinity.required.nodeSelectorTerms", [], "at least one"),
        (CLASS, "volumeBindingMode", "Later", "unknown value"),
        (FLEET, "spec.pools[0].cont", 1, "unknown field"),
        (FLEET, "spec.pools[0].gpus[0].count", 0.5, "expected a whole number"),
    ],
)
def test_the_field_is_named(tree: dict[str, Any], path: str, value: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        decode_object(changed(tree, path, value), "dump.yaml", 12)
    assert caught.value.path == path
    assert str(caught.value).startswith(f"dump.yaml:12: {tree['kind']}")
    assert caught.value.code == "INVALID_OBJECT"


def test_names_that_hold_dots_and_keys_that_are_no_text() -> None:
    tree = copy.deepcopy(POD)
    tree["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = {}
    with pytest.raises(InputError, match="expected a string or a number") as caught:
        decode_object(tree)
    assert caught.value.path == "spec.containers[0].resources.limits.nvidia.com/gpu"
    tree = copy.deepcopy(POD)
    tree["metadata"]["labels"][3] = "x"
    with pytest.raises(InputError, match="the key 3 is not a string") as caught:
        decode_object(tree)
    assert caught.value.path == "metadata.labels.3"


def test_namespace_selectors_are_checked_too() -> None:
    wrong = {"matchExpressions": [{**EXPRESSION, "operator": "Is"}]}
    with pytest.raises(InputError, match="unknown operator") as caught:
        decode_object(changed(POD, f"{REQUIRED}.namespaceSelector", wrong))
    assert caught.value.path == f"{REQUIRED}.namespaceSelector.matchExpressions[0].operator"


def test_min_domains_go_with_do_not_schedule_only() -> None:
    with pytest.raises(InputError, match="minDomains can't be used with ScheduleAnyway"):
        decode_object(changed(POD, f"{SPREAD}.whenUnsatisfiable", "ScheduleAnyway"))


def test_a_missing_field_is_named() -> None:
    with pytest.raises(InputError, match="required field is missing") as caught:
        decode_object(changed(POD, SPREAD, {"maxSkew": 1}))
    assert caught.value.path == f"{SPREAD}.topologyKey"


@pytest.mark.parametrize("raw", [b"", b"[]", b"3", b"null", b"{", b"{}", b'{"kind":3}', b'{"kind":""}', b"\xff\xfe"])
def test_what_is_no_object(raw: bytes) -> None:
    with pytest.raises(InputError, match=r"^f"):
        decode_object(raw, "f")


def test_broken_json_is_located() -> None:
    with pytest.raises(InputError) as caught:
        decode_object(b'{"kind": "Pod",\n  "metadata": x}', "f.json")
    assert (caught.value.line, caught.value.column) == (2, 15)


def test_bottomless_nesting_is_refused() -> None:
    with pytest.raises(InputError):
        decode_object(b'{"kind":"Pod","spec":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001)


def test_items_of_a_typed_list_need_no_kind() -> None:
    bare = {key: value for key, value in NODE.items() if key != "kind"}
    things = decode_object({"kind": "NodeList", "items": [bare]})
    assert isinstance(things, ObjectList)
    assert isinstance(things.items[0], Node)


def test_each_object_of_a_list_stands_for_itself() -> None:
    broken = changed(POD, "spec.priority", "high")
    broken["spec"]["nodeName"] = "n7"
    fine, unreadable, nothing, node = decode_each({"kind": "List", "items": [POD, broken, 3, NODE]}, "d.json")
    assert isinstance(fine, Pod)
    assert isinstance(node, Node)
    assert isinstance(unreadable, Unreadable)
    assert (unreadable.kind, unreadable.namespace, unreadable.name, unreadable.node_name) == (
        "Pod",
        "team",
        "p",
        "n7",
    )
    assert str(unreadable.error).startswith("d.json: Pod team/p: spec.priority: expected")
    assert isinstance(nothing, Unreadable)
    assert "items[2]" in str(nothing.error)


def test_a_whole_list_is_refused_for_one_broken_item() -> None:
    with pytest.raises(InputError, match=r"Pod team/p: spec\.priority"):
        decode_object({"kind": "List", "items": [POD, changed(POD, "spec.priority", "high")]})


@pytest.mark.parametrize("tree", [{"kind": "PodList", "items": 3}, {"kind": "PodList", "items": {"a": 1}}])
def test_lists_without_a_list(tree: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="items: expected a list"):
        decode_object(tree)
    assert [type(thing) for thing in decode_each(tree)] == [Unreadable]
    assert decode_object({"kind": "PodList", "items": None}) == ObjectList(())


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([10**30, -1, 0, 2**63, 1.5, -0.5]),
    st.floats(),
    st.text(max_size=6),
    st.sampled_from(["Exists", "-1", "1e99", "0.5", "3,1", "[]", '[{"model":"A","count":999}]', "dynamic", "12Gi"]),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=3)), max_size=2),
    st.dictionaries(st.one_of(st.text(max_size=6), st.integers()), st.one_of(st.none(), st.integers()), max_size=2),
)


@st.composite
def mutated(draw: st.DrawFn) -> dict[str, Any]:
    """An example in which something has been replaced, removed or moved under another name, up to three times."""
    tree: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(EXAMPLES)))
    for _ in range(draw(st.integers(1, 3))):
        spots = places(tree)
        if not spots:
            break
        *way, last = draw(st.sampled_from(spots))
        parent: Any = tree
        for step in way:
            parent = parent[step]
        action = draw(st.sampled_from(["replace", "replace", "remove", "rename"]))
        if action == "replace":
            parent[last] = draw(JUNK)
        elif action == "remove":
            del parent[last]
        elif isinstance(parent, dict):
            parent[draw(st.one_of(st.text(max_size=4), st.integers(0, 3)))] = parent.pop(last)
    return tree


def use(thing: object) -> None:
    """Everything that reads an object's fields further."""
    if isinstance(thing, ObjectList):
        for item in thing.items:
            use(item)
    if isinstance(thing, Pod):
        gpu_request(thing, pod_requests(thing))
    if isinstance(thing, Node):
        capacity, allocatable = node_quantities(thing)
        node_devices(thing, allocatable, capacity)
    if isinstance(thing, Fleet):
        expand_fleet(thing)


def problem_with(raw: bytes | dict[str, Any]) -> InputError | None:
    """Decodes and uses; any other exception than an `InputError` goes through and fails the test."""
    try:
        use(decode_object(raw, "f"))
    except InputError as error:
        return error
    return None


@given(mutated())
@settings(max_examples=300)
def test_mutated_objects_are_read_or_refused_by_name(tree: dict[str, Any]) -> None:
    kind = tree.get("kind")
    problem = problem_with(tree)
    if problem is not None and isinstance(kind, str) and kind in ("Pod", "Node", "Fleet"):
        assert problem.path
        assert problem.object.startswith(kind)


@given(mutated())
def test_bytes_and_trees_are_read_alike(tree: dict[str, Any]) -> None:
    try:
        raw = msgspec.json.encode(tree)
        tree = msgspec.json.decode(raw)
    except (TypeError, ValueError, msgspec.MsgspecError):
        return
    results = []
    for form in (raw, tree):
        try:
            results.append(repr(decode_object(form)))
        except InputError as error:
            results.append(str(error))
    assert results[0] == results[1]


@given(st.sampled_from(EXAMPLES), st.data())
def test_damaged_bytes_are_read_or_refused(tree: dict[str, Any], data: st.DataObject) -> None:
    raw = bytearray(json.dumps(tree).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        raw[at : at + data.draw(st.integers(0, 5))] = data.draw(st.binary(max_size=4))
    problem = problem_with(bytes(raw))
    assert problem is None or problem.message
