"""From the release before to this one and back, under load, with the kinds that each of them installs.

Replicas of both releases run side by side for a while, as they do while a Deployment is rolled out. Work is submitted
and ends all the time: nothing of it may be lost, started twice or stopped, and no queue may get more than its quota.
"""

from __future__ import annotations

import io
import itertools
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.live.replica import Replica, environment, program
from tests.live.scenes import GPU, gang, overbooked, pod, pods
from tests.live.test_live_queues import established, job, queues
from tests.live.test_live_upgrade import Apply
from tests.real_cluster.api import Api, Object, until
from tests.real_cluster.binaries import Binaries
from tests.real_cluster.control_plane import ControlPlane
from tests.real_cluster.fake_kubelet import FakeKubelet, node

ROOT = Path(__file__).parents[2]
BEFORE = "8a6a6be7"
"""The commit of the release before this one."""
QUOTA, PAUSE_SECONDS, AT_ONCE, DECIDED = 16, 0.15, 30, 12
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WORKLOADS = "/apis/kueue.x-k8s.io/v1beta2/namespaces/default/workloads"


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of the release before this one."""
    made = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, capture_output=True, check=False)
    assert made.returncode == 0, f"{made.stderr.decode()}: fetch the whole history (git fetch --unshallow)"
    folder = tmp_path_factory.mktemp("release-before")
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def manifests(plane: ControlPlane, sources: Path | None) -> str:
    command = [*program(sources), "install", "--crds=always", f"--kubeconfig={plane.kubeconfig}"]
    return subprocess.run(command, env=environment(sources), capture_output=True, text=True, check=True).stdout


class Load:
    """Submits work, lets it end, and writes down what must not be."""

    def __init__(self, api: Api, kubelet: FakeKubelet) -> None:
        self.problems: set[str] = set()
        self.ended: set[str] = set()
        self._api, self._kubelet = api, kubelet
        self._stopped, self._full = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._nodes: dict[str, str] = {}

    @contextmanager
    def running(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()

    def goes_on(self, *replicas: Replica) -> None:
        """Work that is submitted from now on starts and ends as well."""
        wanted = len(self.ended) + DECIDED

        def has_gone_on() -> bool:
            assert not self.problems, self.problems
            return len(self.ended) >= wanted

        until(has_gone_on, 60, lambda: "\n".join(each.last_lines() for each in replicas))

    def everything_ends(self, *replicas: Replica) -> None:
        """No more is submitted, and nothing of what was is left."""
        self._full.set()

        def has_ended() -> bool:
            assert not self.problems, self.problems
            jobs = self._api.items("/apis/batch/v1/namespaces/default/jobs")
            return all(each["status"].get("succeeded") == 2 for each in jobs) and pods(self._api).keys() <= self.ended

        until(has_ended, 60, lambda: "\n".join(each.last_lines() for each in replicas))

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopped.wait(PAUSE_SECONDS):
                return
            there = pods(self._api)
            self._look_at(there)
            if len(there.keys() - self.ended) < AT_ONCE and not self._full.is_set():
                self._api.create(*self._work(number))

    def _work(self, number: int) -> list[Object]:
        kinds = ([pod(f"pod-{number}", 2)], [job(f"job-{number}", 2, 4)], gang(f"gang-{number}", 2, 4))
        return kinds[number % 3]

    def _look_at(self, there: dict[str, Object]) -> None:
        self.problems |= {f"{name} has {count} GPUs too many" for name, count in overbooked(self._api).items()}
        admitted = sum(map(_gpus_admitted, self._api.items(WORKLOADS)))
        if admitted > QUOTA:
            self.problems.add(f"{admitted} of {QUOTA} GPUs are admitted")
        for name in self._nodes.keys() - there.keys():
            self.problems.add(f"{name} is gone")
        for name, found in there.items():
            where, phase = found["spec"].get("nodeName", ""), found["status"].get("phase")
            if name in self._nodes and ("deletionTimestamp" in found["metadata"] or phase == "Failed"):
                self.problems.add(f"{name} was stopped")
            if where and self._nodes.setdefault(name, where) != where:
                self.problems.add(f"{name} has moved")
            if phase == "Running":
                self._kubelet.finish("default", name)
                self.ended.add(name)


def _gpus_admitted(workload: Object) -> int:
    """What it holds of its quota; nothing once it has finished."""
    status = workload.get("status", {})
    if any(found["type"] == "Finished" and found["status"] == "True" for found in status.get("conditions") or ()):
        return 0
    given_back = {each["name"]: each["count"] for each in status.get("reclaimablePods") or ()}
    return sum(
        int(each["resourceUsage"].get(GPU, 0)) * (each["count"] - given_back.get(each["name"], 0)) // each["count"]
        for each in (status.get("admission") or {}).get("podSetAssignments") or ()
        if each["count"]
    )


@contextmanager
def started(replicas: list[Replica]) -> Iterator[list[Replica]]:
    try:
        yield replicas
    finally:
        for each in replicas:
            each.kill()


def roll_out(plane: ControlPlane, folder: Path, replicas: list[Replica], sources: Path | None, load: Load) -> None:
    """As a Deployment does: a new replica, and one less of the others when it is ready. The last of them is killed."""
    old = [each for each in replicas if each.process.poll() is None]
    for number, leaving in enumerate(old):
        coming = Replica(plane.kubeconfig, folder / f"replica-{len(replicas)}.log", sources=sources)
        replicas.append(coming)
        coming.wait_ready()
        load.goes_on(leaving, coming)
        if number + 1 < len(old):
            assert leaving.stop() == 0, leaving.last_lines()
        else:
            leaving.kill()
        load.goes_on(coming)


def kept(api: Api) -> dict[str, object]:
    """What administrators have written, as it is stored."""
    kueue = "/apis/kueue.x-k8s.io/v1beta2"
    kinds = ("clusterqueues", "cohorts", "resourceflavors", "topologies", "workloadpriorityclasses")
    found = {kind: api.items(f"{kueue}/{kind}") for kind in kinds}
    found["reservations"] = api.items("/apis/windlass.dev/v1/reservations")
    return {
        f"{kind}/{each['metadata']['name']}": {field: each.get(field) for field in ("spec", "value", "description")}
        for kind, objects in found.items()
        for each in objects
    }


def administrators_objects() -> list[Object]:
    kueue = {"apiVersion": "kueue.x-k8s.io/v1beta2"}
    levels = [{"nodeLabel": "rack"}, {"nodeLabel": "kubernetes.io/hostname"}]
    window = {"from": "2030-01-01T00:00:00Z", "until": "2030-01-02T00:00:00Z"}
    return [
        *queues(QUOTA),
        {**kueue, "kind": "Cohort", "metadata": {"name": "all"}, "spec": {"fairSharing": {"weight": "2"}}},
        {**kueue, "kind": "Topology", "metadata": {"name": "racks"}, "spec": {"levels": levels}},
        {**kueue, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 9, "description": "first"},
        {
            "apiVersion": "windlass.dev/v1",
            "kind": "Reservation",
            "metadata": {"name": "later"},
            "spec": {"gpus": 2, "who": {"namespaces": ["other"]}, **window},
        },
    ]


def test_up_and_down_again_under_load(
    control_plane: ControlPlane, binaries: Binaries, before: Path, tmp_path: Path
) -> None:
    api, apply = control_plane.api, Apply(control_plane, binaries)
    api.create(*(node(f"n{number}", {GPU: "8"}) for number in range(5)))
    apply(manifests(control_plane, before))
    until(lambda: all(established(api, f"{CRDS}/{kind['metadata']['name']}") for kind in api.items(CRDS)))
    api.create(*administrators_objects())
    written = kept(api)
    first = [Replica(control_plane.kubeconfig, tmp_path / f"first-{n}.log", sources=before) for n in range(2)]
    with FakeKubelet(api) as kubelet, started(first) as replicas:
        for each in replicas:
            each.wait_ready()
        load = Load(api, kubelet)
        with load.running():
            load.goes_on(*replicas)
            apply(manifests(control_plane, None))
            load.goes_on(*replicas)
            roll_out(control_plane, tmp_path, replicas, None, load)
            assert kept(api) == written
            apply(manifests(control_plane, before))
            load.goes_on(*replicas)
            roll_out(control_plane, tmp_path, replicas, before, load)
            assert kept(api) == written
            load.everything_ends(*replicas)
