"""Kueue is installed into a cluster in which Windlass admits, and removed again: at no moment is quota lent twice, and
nobody's work is stopped by it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import yaml
from tests.live.replica import Replica, replica
from tests.live.scenes import GPU, bound
from tests.live.test_live_kueue import KUEUE, admitted, is_suspended, leads, lent, pair, queued
from tests.live.test_live_queues import install_crds, queues, workload
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node
from tests.real_cluster.fixtures import unavailable
from tests.real_cluster.kueue import kueue_controller, register_webhooks
from tests.real_cluster.service import Service, free_ports

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kueue-system/leases/c1f6bfd2.kueue.x-k8s.io"
FREEZE = "/api/v1/namespaces/windlass-system/configmaps/windlass-freeze"
HOOKS = "/apis/admissionregistration.k8s.io/v1"


def test_kueue_comes_and_goes(control_plane: ControlPlane, tmp_path: Path) -> None:
    if os.geteuid() != 0:
        unavailable("a real Kueue needs root")
    api = control_plane.api
    install_crds(api)
    flavor = {**queues(0)[0], "apiVersion": "kueue.x-k8s.io/v1beta2"}
    api.create(*(node(f"n{number}", {GPU: "8"}) for number in range(4)), flavor, *pair("main", 16))
    (hooks,) = free_ports(1)
    with FakeKubelet(api), replica(control_plane.kubeconfig, tmp_path / "log") as scheduler:
        api.create(suspended("before"))
        until(lambda: bound(api, "before"), 60, f"Windlass admits\n{scheduler.last_lines()}")
        kueue = install(control_plane, tmp_path, hooks, scheduler)
        try:
            beside_it(api, scheduler)
        finally:
            kueue.stop()
        remove(api)
        said = "Kueue is not live: Windlass decides on quota"
        until(lambda: scheduler.log.read_text().count(said) == 1, 90, scheduler.last_lines)
        end(api, "later")
        until(watched(api, lambda: bool(bound(api, "last"))), 60, f"Windlass admits again\n{scheduler.last_lines()}")
        assert bound(api, "before"), "it has run all the time"


def install(plane: ControlPlane, folder: Path, hooks: int, scheduler: Replica) -> Service:
    """As the guide has it: Windlass is frozen until it has seen that Kueue is there."""
    api = plane.api
    state = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "windlass-freeze"}}
    state["metadata"]["namespace"] = "windlass-system"
    api.create({**state, "data": {"state": "frozen"}})
    bases = plane.binaries.source("kueue") / "config" / "components" / "crd" / "bases"
    upgrade_kinds(api, bases)
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    kueue = kueue_controller(plane, folder, hooks)
    kueue.start()
    until(lambda: leads(api), 60, f"Kueue leads\n{kueue.last_lines()}")
    register_webhooks(plane, hooks)
    until(lambda: "Kueue is live and decides on quota" in scheduler.log.read_text(), 60, scheduler.last_lines)
    api.patch(FREEZE, {"data": {"state": "running"}})
    return kueue


def upgrade_kinds(api: Api, folder: Path) -> None:
    """Kueue's own CRDs in place of those that Windlass has installed; kinds that were not there come with them."""
    for file in sorted(folder.glob("*.yaml")):
        crd: Object = yaml.safe_load(file.read_text())
        path = f"{CRDS}/{crd['metadata']['name']}"
        if api.exists(path):
            crd["metadata"]["resourceVersion"] = api.get(path)["metadata"]["resourceVersion"]
            api.put(path, crd)
        else:
            api.create(crd)
            until(lambda crd=crd: api.exists(served_at(crd)), 60, path)


def served_at(crd: Object) -> str:
    spec = crd["spec"]
    return f"/apis/{spec['group']}/{spec['versions'][-1]['name']}/{spec['names']['plural']}"


def beside_it(api: Api, scheduler: Replica) -> None:
    """What Windlass has admitted counts for Kueue, which admits from now on; Windlass places."""
    api.create(queued("later", "main"))
    until(watched(api, lambda: bool(bound(api, "later"))), 60, f"Kueue admits\n{scheduler.last_lines()}")
    api.create(queued("last", "main"))
    until(watched(api, lambda: bool(workload(api, "last"))), 60, "Kueue has seen it")
    assert is_suspended(api, "last")
    assert not admitted(api, "last")
    assert {*(name.rpartition("-")[0] for name in bound(api))} == {"before", "later"}


def remove(api: Api) -> None:
    """As `helm uninstall` does; its kinds and their objects stay."""
    for plural in ("validatingwebhookconfigurations", "mutatingwebhookconfigurations"):
        for made in api.items(f"{HOOKS}/{plural}"):
            api.delete(f"{HOOKS}/{plural}/{made['metadata']['name']}")
    api.delete(LEASE)


def end(api: Api, name: str) -> None:
    api.delete(f"/apis/batch/v1/namespaces/default/jobs/{name}", propagationPolicy="Background")
    # Kueue would take its finalizer off; nobody else does.
    for made in api.items(f"{KUEUE}/namespaces/default/workloads"):
        if made["metadata"]["ownerReferences"][0]["name"] == name:
            path = f"{KUEUE}/namespaces/default/workloads/{made['metadata']['name']}"
            api.patch(path, {"metadata": {"finalizers": None}})


def watched(api: Api, look: Callable[[], bool]) -> Callable[[], bool]:
    """Looks, and sees that no more quota is held than there is."""
    return lambda: lent(api) <= 2 and look()


def suspended(name: str) -> Object:
    made = queued(name, "main")
    made["spec"]["suspend"] = True
    return made
