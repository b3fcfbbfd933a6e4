"""Rights as a whole: under the printed role everything works, and nothing else is ever asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.live.bind_policy import refuse_binds
from tests.live.owner_kinds import crds_of_others
from tests.live.replica import replica
from tests.live.right_scenes import changed_job, local_volume
from tests.live.rights import USER, Roles, asked
from tests.live.scenes import GPU, bound, condition, pod, pods
from tests.live.test_live_queues import install_crds, job, queues
from tests.real_cluster.api import Api, ApiError, Object, until
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node


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
    rights = set(Roles(api).rights)
    install_crds(api)
    api.create(*crds_of_others())
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(2)), *queues(10))
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
    assert used <= rights
    # What is written to other kinds has scenes of its own (`right_scenes`), and so has Kubernetes' own PodGroup, and
    # the victim whose budget yields.
    unused = rights - used - {("", "pods", "delete")}
    others = {(group, plural) for group, plural, _ in unused}
    assert {verb for _, _, verb in unused} == {"patch", "list", "watch"}
    assert all(group and "." in group for group, _ in others - {("batch", "jobs/status")})


def play(api: Api, lines: Any) -> None:
    """Something of everything that the scheduler writes."""
    reservation = {
        "from": "2099-01-01T08:00:00Z",
        "until": "2099-01-01T12:00:00Z",
        "gpus": 1,
        "who": {"namespaces": ["default"]},
    }
    metadata = {"name": "launch"}
    api.create({"apiVersion": "windlass.dev/v1", "kind": "Reservation", "metadata": metadata, "spec": reservation})
    backwards = {**reservation, "until": "2099-01-01T07:00:00Z"}
    with pytest.raises(ApiError, match="until must be after from"):
        api.create(
            {"apiVersion": "windlass.dev/v1", "kind": "Reservation", "metadata": {"name": "b"}, "spec": backwards}
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
    queued = pod("done", 1, labels={"kueue.x-k8s.io/queue-name": "main"})
    api.create(queued)
    until(lambda: pods(api)["done"]["status"].get("phase") == "Running", 60, lines())
    api.patch("/api/v1/namespaces/default/pods/done/status", {"status": {"phase": "Succeeded"}})
    history = "/apis/windlass.dev/v1/namespaces/default/runtimehistories/main"
    until(lambda: api.exists(history), 60, lines())
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    api.create(claim("data"), pod("stored", 0, volumes=[volume]))
    path = "/api/v1/namespaces/default/persistentvolumeclaims/data"
    selected = "volume.kubernetes.io/selected-node"
    until(lambda: selected in (api.get(path)["metadata"].get("annotations") or {}), 30, lines())
    until(local_volume(api), 60, lines())
    until(changed_job(api), 60, lines())
    api.create(pod("large", 16))
    until(lambda: "0/2 nodes" in condition(pods(api)["large"]).get("message", ""), 30, lines())
    refuse_binds(api, ["again"])
    api.create(pod("again", 1))
    until(lambda: [one for one in said(api) if one.get("series")], 30, lines())


def said(api: Api) -> list[Object]:
    found = api.items("/apis/events.k8s.io/v1/namespaces/default/events")
    return [one for one in found if one["regarding"]["name"] == "again"]
