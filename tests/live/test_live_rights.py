"""Rights, verb by verb: under the printed role everything works, and nothing in the role is there for nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.api import Api, Object, until
from tests.cluster.control_plane import ControlPlane
from tests.cluster.fake_kubelet import FakeKubelet, node
from tests.live.replica import replica
from tests.live.scenes import GPU, bound, condition, pod, pods
from tests.live.test_live_queues import install_crds, job, queues

from windlass.cli.install_manifests import Choices, manifests
from windlass.kube.resources import KINDS

Right = tuple[str, str, str]
"""API group, resource, verb."""
REQUEST = re.compile(r"(GET|POST|PUT|PATCH|DELETE) (/\S+) (\{.*\}) → (\d+)")
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
USER = "scheduler-under-test"


def granted(rules: list[dict[str, Any]]) -> set[Right]:
    return {
        (group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def asked(log: str) -> Iterator[tuple[Right, int]]:
    """What the scheduler sent, as rights, with the answers."""
    for method, path, query, code in REQUEST.findall(log):
        parts = path.strip("/").split("/")
        if len(parts) <= 3 and "namespaces" not in parts and parts[0] == "apis":
            continue  # discovery is everybody's
        if parts == ["api", "v1"]:
            continue
        group, rest = ("", parts[2:]) if parts[0] == "api" else (parts[1], parts[3:])
        if rest[0] == "namespaces" and len(rest) > 2:
            rest = rest[2:]
        resource = "/".join([rest[0], *rest[2:]])
        verb = VERBS.get(method) or ("watch" if "'watch'" in query else "get" if len(rest) > 1 else "list")
        yield (group, resource, verb), int(code)


def give_rights(api: Api, without: Right | None = None) -> set[Right]:
    """The printed roles for the test's user, perhaps less one right; returns all that they give."""
    rights: set[Right] = set()
    for one in manifests(Choices()):
        if one["kind"] in ("Namespace", "ClusterRole", "Role"):
            rights |= granted(one.get("rules", []))
            api.create(_less(one, without))
        elif one["kind"] in ("ClusterRoleBinding", "RoleBinding"):
            subject = {"kind": "User", "name": USER, "apiGroup": "rbac.authorization.k8s.io"}
            api.create({**one, "subjects": [subject]})
    return rights


def _less(role: Object, without: Right | None) -> Object:
    if without is None or "rules" not in role:
        return role
    group, resource, verb = without
    rules = []
    for rule in role["rules"]:
        for each in rule["resources"]:
            verbs = [
                one for one in rule["verbs"] if (rule["apiGroups"][0], each, one) != (group, resource, verb)
            ]
            rules += [{**rule, "resources": [each], "verbs": verbs}] if verbs else []
    return {**role, "rules": rules}


def other_kinds() -> list[Object]:
    """CRDs for the kinds of other projects, so that there is something to watch."""
    made = []
    for kind in KINDS:
        if kind.required or kind.group in ("kueue.x-k8s.io", "windlass.dev", "scheduling.k8s.io"):
            continue
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {
            "name": kind.versions[0],
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": schema},
        }
        made.append(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {
                    "name": f"{kind.plural}.{kind.group}",
                    "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"},
                },
                "spec": {
                    "group": kind.group,
                    "names": {"kind": kind.kind, "plural": kind.plural},
                    "scope": "Namespaced",
                    "versions": [version],
                },
            }
        )
    return made


def claim(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "later",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }


def test_the_role_gives_exactly_what_is_asked_for(control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    rights = give_rights(api)
    install_crds(api)
    api.create(*other_kinds())
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(2)), *queues(9))
    later = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "later"}}
    api.create({**later, "provisioner": "example.com/none", "volumeBindingMode": "WaitForFirstConsumer"})
    api.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    log = tmp_path / "log"
    with (
        FakeKubelet(api),
        replica(control_plane.user(USER), log, "--log-level=debug", "--lease-seconds=3") as one,
    ):
        play(api, one.last_lines)
    seen = list(asked(log.read_text()))
    refused = {right for right, code in seen if code == 403}
    assert not refused
    used = {right for right, _ in seen}
    # Kubernetes' own PodGroup is off by default, so there is nothing to list.
    unseen = {("scheduling.k8s.io", "podgroups", verb) for verb in ("list", "watch")}
    assert used == rights - unseen


def play(api: Api, lines: Any) -> None:
    """Something of everything that the scheduler writes."""
    reservation = {
        "from": "2099-01-01T08:00:00Z",
        "until": "2099-01-01T12:00:00Z",
        "gpus": 1,
        "who": {"namespaces": ["default"]},
    }
    metadata = {"name": "launch"}
    api.create(
        {"apiVersion": "windlass.dev/v1", "kind": "Reservation", "metadata": metadata, "spec": reservation}
    )
    placed = "/apis/windlass.dev/v1/reservations/launch"
    until(lambda: (api.get(placed).get("status") or {}).get("nodes"), 30, lines())
    api.create(job("low", 1, 8))
    until(lambda: len(bound(api, "low")) == 1, 60, lines())
    api.create(job("urgent", 1, 8, "high"))
    until(lambda: len(bound(api, "urgent")) == 1, 60, lines())
    gated = pod("gated", 1, labels={"kueue.x-k8s.io/queue-name": "main"})
    gated["spec"]["schedulingGates"] = [{"name": "kueue.x-k8s.io/admission"}]
    api.create(gated)
    until(lambda: not pods(api)["gated"]["spec"].get("schedulingGates"), 30, lines())
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    api.create(claim("data"), pod("stored", 0, volumes=[volume]))
    path = "/api/v1/namespaces/default/persistentvolumeclaims/data"
    selected = "volume.kubernetes.io/selected-node"
    until(lambda: selected in (api.get(path)["metadata"].get("annotations") or {}), 30, lines())
    api.create(pod("large", 16))
    until(lambda: "0/2 nodes" in condition(pods(api)["large"]).get("message", ""), 30, lines())
    api.create(node("n2", {GPU: "8"}))
    until(lambda: "0/3 nodes" in condition(pods(api)["large"]).get("message", ""), 30, lines())
    api.delete("/api/v1/nodes/n2")
    until(lambda: "0/2 nodes" in condition(pods(api)["large"]).get("message", ""), 30, lines())
    events = "/apis/events.k8s.io/v1/namespaces/default/events"
    until(
        lambda: [one for one in api.items(events) if (one.get("series") or {}).get("count") == 2], 30, lines()
    )


@pytest.mark.parametrize(
    "right",
    [("", "pods/binding", "create"), ("", "pods", "watch"), ("coordination.k8s.io", "leases", "update")],
    ids=str,
)
def test_without_a_right_it_does_not_work(control_plane: ControlPlane, tmp_path: Path, right: Right) -> None:
    """That the log of requests tells the truth: what it calls needed is."""
    api = control_plane.api
    give_rights(api, without=right)
    api.create(node("n0", {GPU: "8"}))
    with replica(control_plane.user(USER), tmp_path / "log", "--lease-seconds=3", ready=False) as one:
        until(lambda: one.status() in (200, 503))
        api.create(pod("p", 1))
        until(lambda: " 403 " in one.last_lines(), 30, one.last_lines())
        if right[2] != "update":
            assert not bound(api)
