"""Rights, one after the other: without any single one of them, something that the scheduler is for doesn't happen."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.live.bind_policy import allow_binds
from tests.live.owner_kinds import install_kinds_of_others
from tests.live.replica import Replica, replica
from tests.live.right_scenes import SCENES, ground
from tests.live.rights import USER, Right, Roles, asked
from tests.live.test_live_queues import install_crds
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet

from windlass.cluster.delta import Delta
from windlass.kube.client import KubeClient
from windlass.kube.client_config import load_client_config
from windlass.kube.errors import WritesFrozen
from windlass.kube.informers import Informers
from windlass.kube.leader_election import LeaderElectionConfig, LeaderElector
from windlass.kube.request import Request
from windlass.kube.resources import WATCHED_KINDS, Kind
from windlass.kube.write_gate import WriteGate
from windlass.scheduler.configuration_publisher import ConfigurationPublisher
from windlass.scheduler.kueue_watch import kueue_is_live
from windlass.scheduler.options import SchedulerOptions

NATIVE_GROUPS = ("--runtime-config=scheduling.k8s.io/v1alpha2=true", "--feature-gates=GenericWorkload=true")
"""Kubernetes' own PodGroup is off by default, and not there before 1.35."""


@pytest.fixture
def roles(control_plane: ControlPlane) -> Roles:
    if not control_plane.binaries.version.startswith("v1.34."):
        control_plane.restart_apiserver(*NATIVE_GROUPS)
        control_plane.controllers.stop()
        control_plane.controllers.start()
    install_crds(control_plane.api)
    install_kinds_of_others(control_plane.api)
    return Roles(control_plane.api)


def rights_there(roles: Roles, control_plane: ControlPlane) -> list[Right]:
    """All rights, but for a kind that the server can't have."""
    if not control_plane.binaries.version.startswith("v1.34."):
        return roles.rights
    return [one for one in roles.rights if one[:2] != ("scheduling.k8s.io", "podgroups")]


def test_every_right_to_write(roles: Roles, control_plane: ControlPlane, tmp_path: Path) -> None:
    api = control_plane.api
    api.create(*ground())
    writes = [
        right
        for right in rights_there(roles, control_plane)
        if right[2] in ("create", "patch", "update", "delete") and right[1] not in ("leases", "configmaps")
    ]
    assert {right for right in SCENES if right in roles.rights} >= set(writes), "a right that nothing needs"
    kubeconfig = control_plane.user(USER)
    with (
        FakeKubelet(api),
        replica(kubeconfig, tmp_path / "log", "--log-level=debug", "--no-leader-elect") as one,
    ):
        for right in writes:
            missed(api, roles, right, one)
    refused = {right for right, code in asked(one.log.read_text()) if code == 403}
    assert refused == set(writes), "nothing was refused but what was taken away"


def missed(api: Api, roles: Roles, right: Right, one: Replica) -> None:
    """The right is taken away, and what needs it is asked for."""
    roles.without(right)
    effect = SCENES[right](api)
    until(lambda: (right, 403) in asked(one.log.read_text()), 60, f"{right} is needed\n{one.last_lines()}")
    assert not effect(), f"that came about without {right}"
    clear_away(api)
    roles.back(right)


KEPT = ("Namespace", "Node", "PriorityClass", "StorageClass", "ResourceFlavor", "ClusterQueue", "LocalQueue")


def clear_away(api: Api) -> None:
    """What a scene has made: nothing of it may take part in the next one."""
    allow_binds(api)
    for kind in WATCHED_KINDS:
        if kind.kind not in KEPT:
            _remove(api, kind)


def _remove(api: Api, kind: Kind) -> None:
    for version in kind.versions:
        root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
        if not api.exists(f"{root}/{kind.plural}"):
            continue
        for one in api.items(f"{root}/{kind.plural}"):
            _delete(api, root, kind, one)
        return


def _delete(api: Api, root: str, kind: Kind, one: Object) -> None:
    meta = one["metadata"]
    inside = f"/namespaces/{meta['namespace']}" if kind.namespaced else ""
    path = f"{root}{inside}/{kind.plural}/{meta['name']}"
    if meta.get("finalizers") and api.exists(path):
        api.patch(path, {"metadata": {"finalizers": None}})
    if api.exists(path):
        options: dict[str, Any] = {"gracePeriodSeconds": 0, "propagationPolicy": "Background"}
        api.delete(path, **options)
    until(lambda: not api.exists(path), what=f"{path} is gone")


# What is read


LABELS = {"matchLabels": {"app": "x"}}
LABELLED = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"name": "c", "image": "none"}]}}


def sample(kind: Kind, version: str, name: str) -> Object:
    specs: dict[str, Any] = {
        "PersistentVolume": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "hostPath": {"path": "/x"},
        },
        "PersistentVolumeClaim": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "none",
            "resources": {"requests": {"storage": "1Gi"}},
        },
        "Pod": {"containers": [{"name": "c", "image": "none"}]},
        "CSINode": {"drivers": []},
        "VolumeAttachment": {"attacher": "a", "nodeName": "n", "source": {"persistentVolumeName": "v"}},
        "PodDisruptionBudget": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}},
        "Job": {
            "suspend": True,
            "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]}},
        },
        "Deployment": {"replicas": 0, "selector": LABELS, "template": LABELLED},
        "StatefulSet": {"replicas": 0, "serviceName": "s", "selector": LABELS, "template": LABELLED},
        "ClusterQueue": {"namespaceSelector": {}},
        "LocalQueue": {"clusterQueue": "q"},
        "Topology": {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]},
        "Workload": {
            "queueName": "q",
            "podSets": [
                {
                    "name": "main",
                    "count": 1,
                    "template": {"spec": {"containers": [{"name": "c", "image": "none"}]}},
                }
            ],
        },
        "Reservation": {
            "from": "2099-01-01T08:00:00Z",
            "until": "2099-01-01T12:00:00Z",
            "gpus": 1,
            "who": {"namespaces": ["default"]},
        },
    }
    made: Object = {
        "apiVersion": f"{kind.group}/{version}" if kind.group else version,
        "kind": kind.kind,
        "metadata": {"name": name},
    }
    if kind.namespaced:
        made["metadata"]["namespace"] = "default"
    if kind.kind == "StorageClass":
        made["provisioner"] = "example.com/none"
    elif kind.kind == "RuntimeClass":
        made["handler"] = "none"
    elif kind.kind in ("PriorityClass", "WorkloadPriorityClass"):
        made["value"] = 1
    elif kind.kind == "PodGroup" and kind.group == "scheduling.k8s.io":
        made["spec"] = {"schedulingPolicy": {"gang": {"minCount": 1}}}
    elif kind.kind not in ("Namespace", "ServiceAccount"):
        made["spec"] = specs.get(kind.kind, {})
    return made


class Reader:
    """The scheduler's own eyes for one kind, with the rights of the user of the tests."""

    def __init__(self, kubeconfig: Path, kind: Kind) -> None:
        self._kubeconfig, self._kind = kubeconfig, kind
        self.names: set[str] = set()

    def take(self, deltas: Any) -> None:
        self.names |= {_name(delta) for delta in deltas}

    async def sees(self, first: str, second: Callable[[], str]) -> tuple[bool, bool]:
        """Whether it sees what is there at the start, and what comes later."""
        async with KubeClient(load_client_config(str(self._kubeconfig), "")) as client:
            informers = Informers(client, self.take, (self._kind,))
            task = asyncio.create_task(informers.run())
            listed = await self._is_there(first, informers)
            later = await asyncio.to_thread(second)
            watched = listed and await self._is_there(later, informers)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return listed, watched

    async def _is_there(self, name: str, informers: Informers) -> bool:
        """Until it is seen, or was refused."""
        for _ in range(2400):
            if name in self.names:
                return True
            if any(one.restarts for one in informers.informers):
                return False
            await asyncio.sleep(0.05)
        raise AssertionError(f"{self._kind.kind} {name} was neither seen nor refused")


def _name(delta: Delta) -> str:
    thing: Any = getattr(delta, "object", None)
    return getattr(getattr(thing, "metadata", None), "name", "") or getattr(thing, "name", "")


def test_every_right_to_read(roles: Roles, control_plane: ControlPlane) -> None:
    api, kubeconfig = control_plane.api, control_plane.user(USER)
    reads = [right for right in rights_there(roles, control_plane) if right[2] in ("list", "watch")]
    kinds = {(kind.group, kind.plural): kind for kind in WATCHED_KINDS}
    assert {right[:2] for right in reads} <= set(kinds)
    for number, right in enumerate(reads):
        kind = kinds[right[:2]]
        version = next(one for one in ("v1alpha2", *kind.versions) if _is_served(api, kind, one))
        first, second = f"early-{number}", f"late-{number}"
        api.create(sample(kind, version, first))

        def later(kind: Kind = kind, version: str = version, second: str = second) -> str:
            api.create(sample(kind, version, second))
            return second

        roles.without(right)
        seen = asyncio.run(Reader(kubeconfig, kind).sees(first, later))
        assert seen == ((False, False) if right[2] == "list" else (True, False)), right
        roles.back(right)
        assert asyncio.run(Reader(kubeconfig, kind).sees(first, lambda second=second: second)) == (True, True)


def _is_served(api: Api, kind: Kind, version: str) -> bool:
    root = f"/apis/{kind.group}/{version}" if kind.group else f"/api/{version}"
    return version in kind.versions and api.exists(f"{root}/{kind.plural}")


def test_every_right_to_get_and_to_lead(roles: Roles, control_plane: ControlPlane) -> None:
    api, kubeconfig = control_plane.api, control_plane.user(USER)
    leases = "/apis/coordination.k8s.io/v1/namespaces/windlass-system/leases"
    assert lead(kubeconfig, "first")
    assert lead(kubeconfig, "first"), "it keeps what it has"
    for verb in ("get", "update"):
        assert not without(roles, ("coordination.k8s.io", "leases", verb), lambda: lead(kubeconfig, "first"))
    api.delete(f"{leases}/windlass-scheduler")
    right = ("coordination.k8s.io", "leases", "create")
    assert not without(roles, right, lambda: lead(kubeconfig, "first"))
    for verb in ("create", "patch"):  # applied where there is none yet, which takes both
        assert not without(roles, ("", "configmaps", verb), lambda: publish(kubeconfig))
    assert publish(kubeconfig)
    assert not without(roles, ("", "configmaps", "patch"), lambda: publish(kubeconfig))
    assert publish(kubeconfig), "what is there is applied again"
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}}, kueue_lease())
    assert live(kubeconfig)
    assert not without(roles, ("coordination.k8s.io", "leases", "get"), lambda: live(kubeconfig))
    api.delete("/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io")
    hooks = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    api.create({**hooks, "metadata": {"name": "kueue-validating-webhook-configuration"}})
    assert live(kubeconfig)
    right = ("admissionregistration.k8s.io", "validatingwebhookconfigurations", "get")
    assert not without(roles, right, lambda: live(kubeconfig))
    assert may_write(kubeconfig)
    assert not without(roles, ("", "configmaps", "get"), lambda: may_write(kubeconfig))
    covered = {("coordination.k8s.io", "leases"), ("", "configmaps"), right[:2]}
    others = {one[:2] for one in roles.rights if one[2] in ("get", "update") or one[1] == "leases"}
    assert others == covered, "a right that nothing needs"


def without(roles: Roles, right: Right, look: Callable[[], bool]) -> bool:
    roles.without(right)
    seen = look()
    roles.back(right)
    return seen


def kueue_lease() -> Object:
    spec = {"holderIdentity": "kueue", "leaseDurationSeconds": 2_000_000_000}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"},
        "spec": {**spec, "renewTime": "2026-01-01T00:00:00.000000Z"},
    }


def lead(kubeconfig: Path, identity: str) -> bool:
    """One attempt to get or keep the lease."""

    async def attempt() -> bool:
        async with KubeClient(load_client_config(str(kubeconfig), "")) as client:
            lease = LeaderElector(client, LeaderElectionConfig("windlass-system", "windlass-scheduler", identity, 60.0))
            return await lease._try()

    return asyncio.run(attempt())


def publish(kubeconfig: Path) -> bool:
    """One attempt to write the configuration."""

    async def attempt() -> bool:
        async with KubeClient(load_client_config(str(kubeconfig), "")) as client:
            return await ConfigurationPublisher(client, SchedulerOptions(), lambda: True).publish()

    return asyncio.run(attempt())


def may_write(kubeconfig: Path) -> bool:
    """Whether it could be read that writes are not frozen."""

    async def look() -> bool:
        async with KubeClient(load_client_config(str(kubeconfig), "")) as client:
            try:
                await WriteGate(client, "windlass-system").check(Request("PATCH", "/api/v1/nodes/n"))
            except WritesFrozen:
                return False
            return True

    return asyncio.run(look())


def live(kubeconfig: Path) -> bool:
    async def look() -> bool:
        async with KubeClient(load_client_config(str(kubeconfig), "")) as client:
            return await kueue_is_live(client)

    return asyncio.run(look())
