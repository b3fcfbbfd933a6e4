"""In, up and out beside a running default scheduler: whatever is done to Windlass, no running pod notices it.

`data/installed-before.yaml` is what `windlass install --crds=always` printed at the release before this one.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.live.replica import Replica, replica
from tests.live.scenes import GPU, bound, gang, pod, pods
from tests.live.test_live_install import DEPLOYMENT, Run, windlass  # noqa: F401  # a fixture
from tests.live.test_live_queues import job, queues
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

BEFORE = Path(__file__).parent / "data" / "installed-before.yaml"
Fingerprint = tuple[str, str, str, int, bool]


def fingerprints(api: Api) -> dict[str, Fingerprint]:
    """Of every pod on a node: what would differ if anybody had touched it."""
    return {name: _fingerprint(one) for name, one in pods(api).items() if one["spec"].get("nodeName")}


def _fingerprint(one: Object) -> Fingerprint:
    status = one["status"]
    restarts = sum(each["restartCount"] for each in status.get("containerStatuses") or ())
    leaving = "deletionTimestamp" in one["metadata"]
    return one["metadata"]["uid"], one["spec"]["nodeName"], status.get("startTime", ""), restarts, leaving


class Apply:
    def __init__(self, control_plane: ControlPlane, binaries: Binaries) -> None:
        self._kubectl = [str(binaries.path("kubectl")), f"--kubeconfig={control_plane.kubeconfig}"]

    def __call__(self, text: str) -> None:
        command = [*self._kubectl, "apply", "--server-side", "-f", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


@contextmanager
def as_printed(plane: ControlPlane, text: str, log: Path) -> Iterator[Replica]:
    """A replica with the arguments that the printed Deployment gives it, but for the address of its pages."""
    (deployment,) = [one for one in yaml.safe_load_all(text) if one["kind"] == "Deployment"]
    command, *arguments = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
    assert command == "scheduler"
    kept = [one for one in arguments if not one.startswith("--listen")]
    with replica(plane.kubeconfig, log, *kept) as one:
        until(lambda: one.leads, 60, one.last_lines)
        yield one


def kueue_lives(api: Api) -> None:
    """What a Kueue that runs leaves behind: its lease, which nobody lets lapse here."""
    spec = {
        "holderIdentity": "kueue",
        "leaseDurationSeconds": 2_000_000_000,
        "renewTime": "2026-01-01T00:00:00.000000Z",
    }
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kueue-system"}})
    metadata = {"name": "c1f6bfd2.kueue.x-k8s.io", "namespace": "kueue-system"}
    api.create({**lease, "metadata": metadata, "spec": spec})


def test_no_running_pod_is_touched(
    control_plane: ControlPlane,
    binaries: Binaries,
    windlass: Run,  # noqa: F811
    tmp_path: Path,
) -> None:
    api, apply = control_plane.api, Apply(control_plane, binaries)
    api.create(*(node(f"n{i}", {GPU: "8"}) for i in range(6)))
    peer = control_plane.scheduler()
    peer.start()
    try:
        with FakeKubelet(api):
            api.create(pod("old", 1, "default-scheduler"))
            until(lambda: running(api) == {"old"})
            known = fingerprints(api)

            def untouched() -> None:
                """And what has come since is watched over from now on."""
                assert {name: fingerprints(api).get(name) for name in known} == known
                known.update(fingerprints(api))

            before = BEFORE.read_text()
            apply(before)
            untouched()
            with as_printed(control_plane, before, tmp_path / "before.log"):
                api.create(*queues(16), job("queued", 1, 8), *gang("g", 2))
                until(lambda: len(running(api)) == 4)
                untouched()
                now = windlass("install").stdout
                apply(now)  # with the gang running, and its scheduler
                untouched()
            with as_printed(control_plane, now, tmp_path / "now.log") as one:
                api.create(pod("after", 1))
                until(lambda: "after" in running(api), 60, one.last_lines)
                untouched()
            kueue_lives(api)
            api.patch("/apis/kueue.x-k8s.io/v1beta2/clusterqueues/team", {"spec": {"stopPolicy": "Hold"}})
            taken = windlass("install", "--take-over=default/main").stdout
            apply(taken)
            assert "--take-over=default/main" in deployed(api)
            with as_printed(control_plane, taken, tmp_path / "taken.log") as one:
                until(lambda: "Kueue is live" in one.log.read_text(), 60, one.last_lines)
                api.create(job("ours", 1, 8))
                until(lambda: bound(api, "ours"), 60, one.last_lines)
                untouched()
            windlass("uninstall")
            assert not api.exists(DEPLOYMENT)
            untouched()
            windlass("uninstall", "--crds")
            crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/workloads.kueue.x-k8s.io"
            until(lambda: not api.exists(crd))
            untouched()
            assert len(known) == 6
    finally:
        peer.stop()


def running(api: Api) -> set[str]:
    return {name for name, one in pods(api).items() if one["status"].get("phase") == "Running"}


def deployed(api: Api) -> list[str]:
    return list(api.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]["args"])
