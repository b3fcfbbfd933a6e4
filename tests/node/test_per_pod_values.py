"""Where pods share a GPU each has its own part: the same arithmetic over NVML's samples and over simulated ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml as nv
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.node.machines import machine

from windlass.node.backend import nvml
from windlass.node.backend.protocol import DeviceBackend, ProcessUsage
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.exporter.counters import default_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.pod_resources import pod_uids_of_processes
from windlass.node.host_root import HostRoot

FIRST, SECOND = "0a1b2c3d-0000-1111-2222-333344445555", "99999999-aaaa-bbbb-cccc-ddddeeeeffff"
CONTAINER = "3f9c1b5a8e7d4c2b1a0f9e8d7c6b5a493827160f5e4d3c2b1a09f8e7d6c5b4a3"


def systemd(uid: str, *, quality: str = "burstable", scope: str = "cri-containerd") -> str:
    pod = f"kubepods-{quality}-pod{uid.replace('-', '_')}.slice"
    return f"/kubepods.slice/kubepods-{quality}.slice/{pod}/{scope}-{CONTAINER}.scope"


def cgroupfs(uid: str, quality: str = "/besteffort") -> str:
    return f"/kubepods{quality}/pod{uid}/{CONTAINER}"


def version_1(path: str) -> str:
    names = ("12:pids", "9:devices", "4:memory", "3:cpu,cpuacct", "1:name=systemd")
    return "".join(f"{name}:{path}\n" for name in names)


CGROUPS = {
    "v2, systemd, containerd": f"0::{systemd(FIRST)}\n",
    "v2, systemd, CRI-O": f"0::{systemd(FIRST, scope='crio')}\n",
    "v2, systemd, Docker": f"0::{systemd(FIRST, quality='besteffort', scope='docker')}\n",
    "v2, systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{FIRST.replace('-', '_')}.slice/crio-1.scope\n",
    "v2, cgroupfs": f"0::{cgroupfs(FIRST)}\n",
    "v2, cgroupfs, guaranteed": f"0::{cgroupfs(FIRST, '')}\n",
    "v1, systemd": version_1(systemd(FIRST)),
    "v1, cgroupfs": version_1(cgroupfs(FIRST, "/burstable")),
    "v1 and v2 at once": f"{version_1(cgroupfs(FIRST))}0::/system.slice/containerd.service\n",
    "a kubelet with a cgroup of its own": f"0::/kubelet{systemd(FIRST)}\n",
    "seen from inside a container": f"0::/../../kubepods-pod{FIRST.replace('-', '_')}.slice/crio-1.scope\n",
}
OF_THE_HOST = {
    "a service": "0::/system.slice/sshd.service\n",
    "a session": "0::/user.slice/user-1000.slice/session-3.scope\n",
    "the root": "0::/\n",
    "a name that only looks like one": "0::/machine.slice/pod123/container\n",
    "nothing": "",
}


def write_cgroup(root: Path, pid: int, text: str) -> None:
    (root / f"proc/{pid}").mkdir(parents=True)
    (root / f"proc/{pid}/cgroup").write_text(text)


class TestCgroups:
    @pytest.mark.parametrize("text", CGROUPS.values(), ids=CGROUPS)
    def test_a_containers_process_leads_to_its_pod(self, tmp_path: Path, text: str) -> None:
        write_cgroup(tmp_path, 42, text)
        assert pod_uids_of_processes(HostRoot(tmp_path), [42]) == {42: FIRST}

    @pytest.mark.parametrize("text", OF_THE_HOST.values(), ids=OF_THE_HOST)
    def test_the_hosts_own_processes_lead_to_none(self, tmp_path: Path, text: str) -> None:
        write_cgroup(tmp_path, 42, text)
        assert pod_uids_of_processes(HostRoot(tmp_path), [42]) == {}

    def test_a_process_that_has_just_ended(self, tmp_path: Path) -> None:
        assert pod_uids_of_processes(HostRoot(tmp_path), [42]) == {}


class Held:
    """PodResources that say who was given what."""

    def __init__(self, **held: list[DeviceHolder]) -> None:
        self.held = held

    def holders(self, uids: object = None) -> dict[str, list[DeviceHolder]]:
        return {uuid.replace("_", "-"): holders for uuid, holders in self.held.items()}


USES = [(7, 1000, 30), (8, 250, 0), (9, 40, 5), (10, 600, 55)]
"""Pid, MiB and percent: two of the first pod, one of the second, one of the host."""


def simulated(monkeypatch: pytest.MonkeyPatch, uses: list[tuple[int, int, int]]) -> DeviceBackend:
    backend = machine(count=1)
    processes = [ProcessUsage(pid=pid, memory_mib=mib, sm_percent=busy) for pid, mib, busy in uses]
    backend.inject(0, processes=processes, load=0.9)
    return backend


class Driver:
    """NVML with one GPU: hands each sample out once, as the real one does, and none for who did nothing."""

    def __init__(self, uses: list[tuple[int, int, int]]) -> None:
        self.uses = uses
        self.newest = 1_000_000
        self.refuses = 0

    def processes(self, handle: object) -> list[SimpleNamespace]:
        return [SimpleNamespace(pid=pid, usedGpuMemory=mib << 20) for pid, mib, _ in self.uses]

    def samples(self, handle: object, since: int) -> list[SimpleNamespace]:
        busy = [(pid, percent) for pid, _, percent in self.uses if percent]
        if self.refuses:
            raise nv.NVMLError(self.refuses)
        if since >= self.newest or not busy:
            raise nv.NVMLError(nv.NVML_ERROR_NOT_FOUND)
        return [SimpleNamespace(pid=pid, smUtil=usage, timeStamp=self.newest) for pid, usage in busy]

    def install(self, monkeypatch: pytest.MonkeyPatch, inventory: Any) -> nvml.NvmlBackend:
        monkeypatch.setattr(nv, "nvmlInit", lambda: None)
        monkeypatch.setattr(nv, "nvmlDeviceGetHandleByUUID", lambda uuid: uuid)
        monkeypatch.setattr(nv, "nvmlDeviceGetComputeRunningProcesses", self.processes)
        for other in ("Graphics", "MPSCompute"):
            monkeypatch.setattr(nv, f"nvmlDeviceGet{other}RunningProcesses", lambda handle: [])
        monkeypatch.setattr(nv, "nvmlDeviceGetProcessUtilization", self.samples)
        backend = nvml.NvmlBackend(HostRoot("/nowhere"))
        reading = {"DCGM_FI_DEV_GPU_UTIL": 90.0, "DCGM_FI_DEV_FB_USED": 1890.0}
        monkeypatch.setattr(backend, "inventory", lambda: inventory)
        monkeypatch.setattr(backend, "reading", lambda uuid: reading)
        monkeypatch.setattr("windlass.node.backend.nvml_reading.time.time", lambda: 0.5)
        return backend


def through_nvml(monkeypatch: pytest.MonkeyPatch, uses: list[tuple[int, int, int]]) -> DeviceBackend:
    return Driver(uses).install(monkeypatch, machine(count=1).inventory())


def values(page: bytes, name: str) -> dict[str, float]:
    for family in text_string_to_metric_families(page.decode()):
        if family.name == name:
            return {sample.labels.get("pod", ""): sample.value for sample in family.samples}
    return {}


def exported(backend: DeviceBackend, root: Path, *, uids: bool = True) -> Exporter:
    uuid = backend.inventory().gpus[0].uuid
    names = ("a", FIRST), ("b", SECOND), ("idle", "12345678-1234-1234-1234-123456789012")
    holders = [DeviceHolder(name, "team", "main", uid if uids else "") for name, uid in names]
    exporter = Exporter(
        backend,
        default_counters(),
        hostname="n1",
        root=HostRoot(root),
        pods=Held(**{uuid.replace("-", "_"): holders}),  # type: ignore[arg-type]
    )
    exporter.collect()
    return exporter


@pytest.fixture
def host(tmp_path: Path) -> Path:
    for pid, text in (
        (7, f"0::{systemd(FIRST)}\n"),
        (8, version_1(cgroupfs(FIRST))),
        (9, f"0::{cgroupfs(SECOND)}\n"),
        (10, "0::/system.slice/dcgm.service\n"),
    ):
        write_cgroup(tmp_path, pid, text)
    return tmp_path


@pytest.mark.parametrize("backend", [simulated, through_nvml])
class TestParts:
    def test_each_pod_has_the_sum_of_its_processes(
        self, monkeypatch: pytest.MonkeyPatch, host: Path, backend: Callable[..., DeviceBackend]
    ) -> None:
        page = exported(backend(monkeypatch, USES), host).metrics_text
        assert values(page, "DCGM_FI_DEV_FB_USED") == {"a": 1250, "b": 40, "idle": 0}
        assert values(page, "DCGM_FI_DEV_GPU_UTIL") == {"a": 30, "b": 5, "idle": 0}

    def test_without_the_api_servers_word_everybody_has_the_gpus_value(
        self, monkeypatch: pytest.MonkeyPatch, host: Path, backend: Callable[..., DeviceBackend]
    ) -> None:
        page = exported(backend(monkeypatch, USES), host, uids=False).metrics_text
        assert set(values(page, "DCGM_FI_DEV_GPU_UTIL").values()) == {90}

    def test_nobody_on_the_gpu_is_nobodys_part(
        self, monkeypatch: pytest.MonkeyPatch, host: Path, backend: Callable[..., DeviceBackend]
    ) -> None:
        page = exported(backend(monkeypatch, []), host).metrics_text
        assert values(page, "DCGM_FI_DEV_FB_USED") == {"a": 0, "b": 0, "idle": 0}


def test_a_gpu_that_nobody_shares_is_its_pods_and_no_process_is_asked_for(host: Path) -> None:
    backend = machine(count=1)
    backend.inject(0, processes=[ProcessUsage(pid=9, memory_mib=40, sm_percent=5)], load=0.9)
    uuid = backend.inventory().gpus[0].uuid
    asked: list[str] = []

    class Watched:
        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(backend, name)

    exporter = Exporter(
        Watched(),  # type: ignore[arg-type]
        default_counters(),
        hostname="n1",
        root=HostRoot(host),
        pods=Held(**{uuid.replace("-", "_"): [DeviceHolder("alone", "team", "main", FIRST)]}),  # type: ignore[arg-type]
    )
    exporter.collect()
    assert values(exporter.metrics_text, "DCGM_FI_DEV_GPU_UTIL") == {"alone": 90}
    assert values(exporter.metrics_text, "DCGM_FI_DEV_FB_USED") == {"alone": 40}
    assert "processes" not in asked


class TestSamples:
    """NVML hands a sample out once: a pass asks once, and the next pass sees only what is new."""

    def test_a_later_pass_sees_later_samples(self, monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
        driver = Driver(USES)
        exporter = exported(driver.install(monkeypatch, machine(count=1).inventory()), host)
        driver.newest += 1_000_000
        driver.uses = [(7, 1000, 10), (9, 40, 80)]
        exporter.collect()
        assert values(exporter.metrics_text, "DCGM_FI_DEV_GPU_UTIL") == {"a": 10, "b": 80, "idle": 0}

    def test_since_then_nothing_means_idle(self, monkeypatch: pytest.MonkeyPatch, host: Path) -> None:
        exporter = exported(Driver(USES).install(monkeypatch, machine(count=1).inventory()), host)
        exporter.collect()
        assert values(exporter.metrics_text, "DCGM_FI_DEV_GPU_UTIL") == {"a": 0, "b": 0, "idle": 0}

    def test_where_the_driver_takes_none_the_gpus_value_is_everybodys(
        self, monkeypatch: pytest.MonkeyPatch, host: Path
    ) -> None:
        driver = Driver(USES)
        driver.refuses = nv.NVML_ERROR_NOT_SUPPORTED
        page = exported(driver.install(monkeypatch, machine(count=1).inventory()), host).metrics_text
        assert values(page, "DCGM_FI_DEV_GPU_UTIL") == {"a": 90, "b": 90, "idle": 0}
        assert values(page, "DCGM_FI_DEV_FB_USED") == {"a": 1250, "b": 40, "idle": 0}
