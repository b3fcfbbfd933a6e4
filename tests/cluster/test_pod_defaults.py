"""What the API server will add to pods counts before there are pods: LimitRange defaults and RuntimeClasses."""

from __future__ import annotations

from typing import Any

from windlass.model.codec import decode_object
from windlass.model.configuration import Settings
from windlass.planner import plan_objects

Tree = dict[str, Any]


def made(version: str, kind: str, name: str, **fields: Any) -> Tree:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}, **fields}


def job(**spec: Any) -> Tree:
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    container = {"name": "main", "image": "none", "resources": spec.pop("resources", {})}
    template = {"spec": {"containers": [container], "restartPolicy": "Never", **spec}}
    metadata = {"name": "train", "namespace": "default", "labels": labels}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {"suspend": True, "parallelism": 2, "completions": 2, "template": template},
    }


def queues(cpu: str) -> list[Tree]:
    cells = [{"name": "cpu", "nominalQuota": cpu}]
    groups = [{"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": cells}]}]
    version = "kueue.x-k8s.io/v1beta1"
    return [
        made(version, "ResourceFlavor", "any", spec={}),
        made(version, "ClusterQueue", "team", spec={"namespaceSelector": {}, "resourceGroups": groups}),
        made(version, "LocalQueue", "main", spec={"clusterQueue": "team"}),
    ]


def node(**labels: str) -> Tree:
    room = {"cpu": "8", "memory": "8Gi", "pods": "10"}
    found = made("v1", "Node", "n1", status={"capacity": room, "allocatable": room})
    found["metadata"]["labels"] = labels
    return found


def admitted(*trees: Tree) -> bool:
    plan, _ = plan_objects([decode_object(tree) for tree in trees], Settings(), 1_800_000_000)
    return bool(plan.admits)


def limit_range(namespace: str = "default", **item: Any) -> Tree:
    found = made("v1", "LimitRange", "defaults", spec={"limits": [{"type": "Container", **item}]})
    found["metadata"]["namespace"] = namespace
    return found


def test_default_requests_of_a_namespace_count_against_quota() -> None:
    assert admitted(node(), *queues("1"), job())
    assert not admitted(node(), *queues("1"), job(), limit_range(defaultRequest={"cpu": "1"}))
    assert admitted(node(), *queues("2"), job(), limit_range(defaultRequest={"cpu": "1"}))
    assert admitted(node(), *queues("1"), job(), limit_range("other", defaultRequest={"cpu": "1"}))


def test_a_default_limit_is_the_request_where_no_default_request_is_given() -> None:
    assert not admitted(node(), *queues("1"), job(), limit_range(default={"cpu": "1"}))
    both = limit_range(default={"cpu": "1"}, defaultRequest={"cpu": "500m"})
    assert admitted(node(), *queues("1"), job(), both)


def test_what_a_container_asks_for_itself_counts() -> None:
    defaults = limit_range(defaultRequest={"cpu": "4"})
    assert admitted(node(), *queues("1"), job(resources={"requests": {"cpu": "500m"}}), defaults)
    assert admitted(node(), *queues("1"), job(resources={"limits": {"cpu": "500m"}}), defaults)


def test_the_overhead_of_a_runtime_class_counts() -> None:
    small = {"requests": {"cpu": "500m"}}
    kata = made("node.k8s.io/v1", "RuntimeClass", "kata", handler="kata", overhead={"podFixed": {"cpu": "250m"}})
    assert admitted(node(), *queues("1"), job(resources=small, runtimeClassName="kata"))
    assert not admitted(node(), *queues("1"), job(resources=small, runtimeClassName="kata"), kata)
    assert admitted(node(), *queues("1500m"), job(resources=small, runtimeClassName="kata"), kata)


def test_pods_go_where_their_runtime_class_sends_them() -> None:
    kata = made("node.k8s.io/v1", "RuntimeClass", "kata", handler="kata", scheduling={"nodeSelector": {"kata": "yes"}})
    asked = job(resources={"requests": {"cpu": "500m"}}, runtimeClassName="kata")
    assert not admitted(node(), *queues("1"), asked, kata)
    assert admitted(node(kata="yes"), *queues("1"), asked, kata)


def test_the_workload_of_a_job_counts_the_same() -> None:
    wanted = job()
    wanted["metadata"]["uid"] = "u"
    pod_set = {"name": "main", "count": 2, "template": wanted["spec"]["template"]}
    made_workload = made("kueue.x-k8s.io/v1beta1", "Workload", "w", spec={"queueName": "main", "podSets": [pod_set]})
    reference = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u", "controller": True}
    made_workload["metadata"] |= {"namespace": "default", "ownerReferences": [reference]}
    defaults = limit_range(defaultRequest={"cpu": "1"})
    assert not admitted(node(), *queues("1"), wanted, made_workload, defaults)
    assert admitted(node(), *queues("2"), wanted, made_workload, defaults)
