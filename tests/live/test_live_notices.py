"""A node gets notice: the gang on it is asked, answers, and goes on on other nodes; nothing else moves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.live.replica import replica
from tests.live.scenes import GPU, PODS, bound, pods
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import Cluster

Kubelets = Callable[..., FakeKubelet]
ASK, ANSWER = "windlass.dev/ask", "windlass.dev/ask-answer"
OPTED_IN = {"windlass.dev/on-preemption": "ask", "windlass.dev/checkpoint-grace": "5m"}
SPOT = {"key": "aws-node-termination-handler/spot-itn", "value": "itn-1", "effect": "NoSchedule"}


def training(name: str, size: int) -> Object:
    """A Job whose pods start together, and tolerate everything."""
    container = {"name": "main", "image": "none", "resources": {"limits": {GPU: "8"}}}
    annotations = {**OPTED_IN, "kueue.x-k8s.io/pod-group-total-count": str(size)}
    spec = {
        "schedulerName": "windlass",
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "containers": [container],
        "tolerations": [{"operator": "Exists"}],
    }
    metadata = {"labels": {"kueue.x-k8s.io/pod-group-name": name}, "annotations": annotations}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"parallelism": size, "completions": size, "template": {"metadata": metadata, "spec": spec}},
    }


def requests(api: Api) -> dict[str, Any]:
    """Pod → what it is asked."""
    annotations = {name: found["metadata"].get("annotations") or {} for name, found in pods(api, "train").items()}
    return {name: json.loads(texts[ASK]) for name, texts in annotations.items() if ASK in texts}


def test_a_gang_leaves_a_node_that_goes_and_comes_back_elsewhere(
    cluster: Cluster, kubelets: Kubelets, tmp_path: Path
) -> None:
    kubelets()
    api = cluster.api
    api.create(*(node(f"n{number}", {GPU: "8"}) for number in range(2)))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(training("train", 2))
        first = until(lambda: (found := bound(api)) and len(found) == 2 and found, 60, one.last_lines)
        api.create(node("n2", {GPU: "8"}))
        asked_at = time.time()
        api.patch("/api/v1/nodes/n1", {"spec": {"taints": [SPOT]}})
        asked = until(lambda: (found := requests(api)) and len(found) == 2 and found, 60, one.last_lines)
        notices = {request["notice"] for request in asked.values()}
        assert notices == {"node n1 goes: AWS interrupts the spot instance"}
        assert len({request["id"] for request in asked.values()}) == 1, "one ask for the gang"
        assert bound(api) == first, "an ask moves nothing"
        (name, request), *_ = sorted(asked.items())
        answer = {"id": request["id"], "checkpoint": request["asked"], "where": "s3://runs/7"}
        api.patch(f"{PODS}/{name}", {"metadata": {"annotations": {ANSWER: json.dumps(answer)}}})
        until(lambda: set(bound(api).values()) == {"n0", "n2"}, 60, one.last_lines)
        assert not set(bound(api)) & set(first), "both pods are new"
        assert time.time() - asked_at < 60, "long before the deadline"
        assert requests(api) == {}


def test_an_ask_is_taken_back_with_the_notice(cluster: Cluster, kubelets: Kubelets, tmp_path: Path) -> None:
    kubelets()
    api = cluster.api
    api.create(node("n0", {GPU: "8"}))
    with replica(cluster.kubeconfig, tmp_path / "log", "--no-leader-elect") as one:
        api.create(training("train", 1))
        first = until(lambda: bound(api), 60, one.last_lines)
        api.patch("/api/v1/nodes/n0", {"spec": {"taints": [{"key": "windlass.dev/leaving", "effect": "NoSchedule"}]}})
        until(lambda: requests(api), 60, one.last_lines)
        api.patch("/api/v1/nodes/n0", {"spec": {"taints": None}})
        until(lambda: not requests(api), 60, one.last_lines)
        assert bound(api) == first
