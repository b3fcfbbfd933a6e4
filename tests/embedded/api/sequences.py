"""Requests in a row, for what depends on what was before: field ownership, and what may not change."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.embedded.api.samples import SELECTOR, container, made, pod, template

from windlass.model.unstructured import Unstructured

APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON = "application/json-patch+json"


class Step(NamedTuple):
    """One request. Without a patch it creates `target`; an apply patch is `target` itself."""

    target: Unstructured
    manager: str = "test"
    patch: Any = None
    content_type: str = STRATEGIC
    subresource: str = ""
    force: bool = False


def _deployment(name: str, labels: Unstructured | None = None, **spec: Any) -> Unstructured:
    metadata = {"name": name, "labels": labels} if labels else {"name": name}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


def _config(metadata: Unstructured | None = None, **data: str) -> Unstructured:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "ssa", **(metadata or {})},
        "data": data,
    }


def _main(**fields: Any) -> Unstructured:
    return {"spec": {"containers": [{"name": "main", **fields}]}}


_FULL = made(
    "apps/v1",
    "Deployment",
    "ssa",
    metadata={"labels": {"a": "b"}},
    spec={
        "replicas": 2,
        "paused": True,
        "selector": SELECTOR,
        "template": template(
            containers=[
                container(
                    env=[{"name": "A", "value": "1"}],
                    ports=[{"containerPort": 80}],
                    resources={"limits": {"cpu": "1"}},
                )
            ],
            volumes=[{"name": "v"}],
            tolerations=[{"operator": "Exists"}],
        ),
    },
)


def _apply(target: Unstructured, manager: str, *, force: bool = False) -> Step:
    return Step(target, manager, target, APPLY, force=force)


OWNERSHIP: list[Step] = [
    Step(_FULL, "creator"),
    _apply(_deployment("ssa", {"x": "y"}, replicas=3), "applier"),
    _apply(_deployment("ssa", {"x": "y"}, replicas=3), "applier", force=True),
    _apply(
        _deployment("ssa", replicas=3, template=_main(image="other:1", env=[{"name": "B", "value": "2"}])),
        "applier",
    ),
    _apply(
        _deployment("ssa", replicas=3, template=_main(image="other:1", env=[{"name": "B", "value": "2"}])),
        "applier",
        force=True,
    ),
    _apply(_deployment("ssa", replicas=3, template=_main(image="other:1")), "applier"),
    _apply(_deployment("ssa", replicas=3), "applier"),
    Step(_deployment("ssa"), "scaler", {"spec": {"replicas": 7}}),
    _apply(_deployment("ssa", replicas=3, template=_main(image="other:1")), "applier"),
    _apply(_deployment("ssa", foo=1), "applier"),
    _apply({**_FULL, "metadata": {"name": "ssa2", "labels": {"q": "r"}}}, "applier"),
    _apply(_deployment("ssa2", replicas=2), "second", force=True),
    _apply(_deployment("ssa2", replicas=9, template=_main(image="zz")), "third"),
    Step(
        _deployment("ssa2"),
        "edit",
        {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "b:2"}], "tolerations": None}}}},
    ),
    Step(_deployment("ssa2"), "edit", {"metadata": {"labels": {"q": None, "new": "1"}}}),
    Step(
        _deployment("ssa2"),
        "more",
        {
            "metadata": {"finalizers": ["example.com/z"]},
            "spec": {"template": {"spec": {"containers": [{"name": "first", "image": "f:1"}]}}},
        },
    ),
    Step(
        _deployment("ssa2"),
        "more",
        {
            "metadata": {"finalizers": ["example.com/a"]},
            "spec": {
                "template": {"spec": {"containers": [{"name": "new", "image": "n:1"}, {"name": "main", "tty": True}]}}
            },
        },
    ),
    Step(
        _deployment("ssa2"),
        "directives",
        {
            "spec": {
                "template": {
                    "spec": {
                        "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}],
                        "containers": [
                            {"name": "side", "image": "s:1"},
                            {"name": "main", "env": [{"$patch": "delete", "name": "A"}]},
                        ],
                        "volumes": [{"$patch": "replace"}, {"name": "w", "emptyDir": {}}],
                    }
                }
            }
        },
    ),
    Step(
        _deployment("ssa2"),
        "keys",
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
    ),
    Step(_deployment("ssa2"), "json", [{"op": "remove", "path": "/spec/template/spec/containers/0"}], JSON),
    Step(_deployment("ssa2"), "json", [{"op": "test", "path": "/spec/replicas", "value": 99}], JSON),
    _apply(_config({"finalizers": ["example.com/x"]}, a="1", b="2"), "a"),
    _apply(_config(b="2", c="3"), "b"),
    _apply(_config(a="5"), "a"),
    Step(_config(), "b", {"data": {"b": None}}),
    Step(_config(), "c", {"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/x"]}}),
    _apply(_config(), "b"),
]

_JOB = made("batch/v1", "Job", "u", spec={"suspend": True, "template": template(restartPolicy="Never")})
_HELD = pod("held", schedulingGates=[{"name": "example.com/a"}])
_POD = pod("u", containers=[container(resources={"limits": {"cpu": "1"}})], schedulingGates=[{"name": "a.b/c"}])
_SET = made(
    "apps/v1",
    "StatefulSet",
    "u",
    spec={"serviceName": "s", "replicas": 0, "selector": SELECTOR, "template": template()},
)
_ROLLED = {"spec": {"selector": {"matchLabels": {"app": "y"}}, "template": {"metadata": {"labels": {"app": "y"}}}}}


def _tries(target: Unstructured, *patches: Unstructured) -> list[Step]:
    return [Step(target), *(Step(target, patch=patch, content_type=MERGE) for patch in patches)]


FIXED: list[Step] = [
    *_tries(
        _POD,
        {"spec": {"activeDeadlineSeconds": 5}},
        {"spec": {"activeDeadlineSeconds": 9}},
        {"spec": {"activeDeadlineSeconds": None}},
        {"spec": {"tolerations": []}},
        {"spec": {"restartPolicy": "Never"}},
        {"spec": {"schedulerName": "x"}},
        {"spec": {"priority": 7}},
        {"metadata": {"labels": {"a": "b c"}}},
        {"metadata": {"creationTimestamp": None}},
        {"spec": {"schedulingGates": [{"name": "d.e/f"}]}},
    ),
    *_tries(
        _HELD,
        {"spec": {"nodeSelector": {"a": "b"}}},
        {"spec": {"schedulingGates": None}},
        {"spec": {"nodeSelector": {"a": "c"}}},
    ),
    *_tries(
        _JOB,
        {"spec": {"completions": 4}},
        {"spec": {"parallelism": 4}},
        {"spec": {"completionMode": "Indexed"}},
        {"spec": {"backoffLimit": 1}},
        {"spec": {"template": {"spec": {"nodeSelector": {"a": "b"}}}}},
        {"spec": {"ttlSecondsAfterFinished": 3}},
    ),
    *_tries(
        made("apps/v1", "Deployment", "u", spec={"paused": True, "selector": SELECTOR, "template": template()}),
        _ROLLED,
        {"spec": {"selector": {"matchLabels": {"z": "y"}}}},
        {"spec": {"replicas": -1}},
    ),
    *_tries(
        made("apps/v1", "ReplicaSet", "u", spec={"replicas": 0, "selector": SELECTOR, "template": template()}),
        _ROLLED,
    ),
    *_tries(made("apps/v1", "DaemonSet", "u", spec={"selector": SELECTOR, "template": template()}), _ROLLED),
    *_tries(_SET, {"spec": {"serviceName": "y"}}, _ROLLED, {"spec": {"podManagementPolicy": "Parallel"}}),
    *_tries(
        made("v1", "ConfigMap", "u", data={"a": "1"}, immutable=True),
        {"data": {"a": "2"}},
        {"immutable": None},
    ),
    *_tries(made("v1", "Secret", "u", data={"a": "aGk="}, immutable=True), {"data": {"a": "aGkK"}}, {"type": "x"}),
    *_tries(
        made("scheduling.k8s.io/v1", "PriorityClass", "u", value=5),
        {"value": 6},
        {"preemptionPolicy": "Never"},
    ),
    *_tries(
        made("storage.k8s.io/v1", "StorageClass", "u", provisioner="x"),
        {"provisioner": "y"},
        {"reclaimPolicy": "Retain"},
        {"volumeBindingMode": "WaitForFirstConsumer"},
        {"parameters": {"a": "b"}},
    ),
    *_tries(made("node.k8s.io/v1", "RuntimeClass", "u", handler="x"), {"handler": "y"}),
    *_tries(made("v1", "ResourceQuota", "u", spec={"hard": {"pods": "99"}}), {"spec": {"scopes": ["Terminating"]}}),
    *_tries(
        made(
            "rbac.authorization.k8s.io/v1",
            "RoleBinding",
            "u",
            roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        ),
        {"roleRef": {"name": "y"}},
    ),
    *_tries(
        made("v1", "Node", "u", spec={"providerID": "a", "podCIDR": "10.1.0.0/24"}),
        {"spec": {"providerID": "b"}},
        {"spec": {"unschedulable": True}},
        {"spec": {"taints": [{"key": "a"}]}},
    ),
]
