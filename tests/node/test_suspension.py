"""Suspending a pod's CUDA work in place, on a driver that can refuse any call."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from windlass.cli import node_suspend
from windlass.model.errors import InputError
from windlass.node.backend.protocol import DeviceError
from windlass.node.cuda_checkpoint import CudaState
from windlass.node.host_root import HostRoot
from windlass.node.suspension import Suspender, pod_uid

UID = "0f9c1c9e-2a45-4a3c-9a0f-0d5f3f1a7b11"
GROUP = f"/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice"


class PlayedDriver:
    """Processes and their states; the calls that are listed fail."""

    def __init__(self, states: dict[int, CudaState], failing: frozenset[tuple[str, int]] = frozenset()) -> None:
        self.states = states
        self.failing = failing
        self.calls: list[tuple[str, int]] = []

    def state(self, pid: int) -> CudaState | None:
        return self.states.get(pid)

    def lock(self, pid: int, timeout_ms: int) -> None:
        self._move("lock", pid, CudaState.RUNNING, CudaState.LOCKED)

    def checkpoint(self, pid: int) -> None:
        self._move("checkpoint", pid, CudaState.LOCKED, CudaState.CHECKPOINTED)

    def restore(self, pid: int) -> None:
        self._move("restore", pid, CudaState.CHECKPOINTED, CudaState.LOCKED)

    def unlock(self, pid: int) -> None:
        self._move("unlock", pid, CudaState.LOCKED, CudaState.RUNNING)

    def _move(self, call: str, pid: int, before: CudaState, after: CudaState) -> None:
        self.calls.append((call, pid))
        if (call, pid) in self.failing:
            raise DeviceError(f"{call} is refused")
        assert self.states[pid] is before, f"{call} of {pid}, which is {self.states[pid].name}"
        self.states[pid] = after


def machine(folder: Path, pids: dict[int, str], *, limit_mib: int = 4096, free_mib: int = 100_000) -> HostRoot:
    """A host on which the pod team/train has processes in one container."""
    (folder / "var/log/pods" / f"team_train_{UID}").mkdir(parents=True)
    cgroup = folder / "sys/fs/cgroup" / GROUP.lstrip("/")
    (cgroup / "box").mkdir(parents=True)
    (cgroup / "memory.max").write_text("max")
    (cgroup / "box/memory.max").write_text(str(limit_mib << 20))
    (cgroup / "box/memory.current").write_text(str(1024 << 20))
    (folder / "proc").mkdir()
    for pid, group in pids.items():
        (folder / "proc" / str(pid)).mkdir(parents=True)
        (folder / "proc" / str(pid) / "cgroup").write_text(f"0::{group}")
        (folder / "proc" / str(pid) / "comm").write_text("python3")
    (folder / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {free_mib * 1024} kB\n")
    return HostRoot(folder)


def test_the_processes_of_a_pod_are_found_by_its_cgroup(tmp_path: Path) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box", 8: f"{GROUP}/box", 9: "/system.slice/sshd", 11: f"{GROUP}/box"})
    driver = PlayedDriver({7: CudaState.RUNNING, 9: CudaState.RUNNING, 11: CudaState.RUNNING})
    found = Suspender(driver, host, {7: 300}).processes_of_pod("team", "train")
    assert [(process.pid, process.memory_mib) for process in found] == [(7, 300), (11, 0)]


def test_all_are_locked_before_the_first_is_taken_off(tmp_path: Path) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box", 8: f"{GROUP}/box"})
    driver = PlayedDriver({7: CudaState.RUNNING, 8: CudaState.RUNNING})
    suspender = Suspender(driver, host, {7: 1000, 8: 500})
    done = suspender.suspend(suspender.processes([7, 8]), 10)
    assert [call for call, _ in driver.calls] == ["lock", "lock", "checkpoint", "checkpoint"]
    assert [(each.pid, each.memory_mib) for each in done] == [(7, 1000), (8, 500)]
    resumed = suspender.resume(suspender.processes([7, 8]))
    assert [call for call, _ in driver.calls[4:]] == ["restore", "restore", "unlock", "unlock"]
    assert [each.pid for each in resumed] == [7, 8]
    assert set(driver.states.values()) == {CudaState.RUNNING}


@given(
    failing=st.frozensets(
        st.tuples(st.sampled_from(["lock", "checkpoint"]), st.sampled_from([7, 8, 9])), min_size=1, max_size=2
    )
)
def test_what_the_driver_refuses_leaves_all_running(
    tmp_path_factory: pytest.TempPathFactory, failing: frozenset[tuple[str, int]]
) -> None:
    host = machine(tmp_path_factory.mktemp("host"), dict.fromkeys((7, 8, 9), f"{GROUP}/box"))
    driver = PlayedDriver(dict.fromkeys((7, 8, 9), CudaState.RUNNING), failing)
    suspender = Suspender(driver, host, {})
    with pytest.raises(DeviceError, match=r"process \d \(python3\) can't be suspended: .* nothing is suspended"):
        suspender.suspend(suspender.processes([7, 8, 9]), 10)
    assert set(driver.states.values()) == {CudaState.RUNNING}


def test_a_process_that_cannot_be_put_back_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box", 8: f"{GROUP}/box"})
    driver = PlayedDriver(dict.fromkeys((7, 8), CudaState.RUNNING), frozenset({("checkpoint", 8), ("restore", 7)}))
    suspender = Suspender(driver, host, {})
    with pytest.raises(DeviceError, match="process 7 could not be put back either: end the pod"):
        suspender.suspend(suspender.processes([7, 8]), 10)
    assert driver.states[8] is CudaState.RUNNING


def test_a_gpu_that_is_taken_leaves_the_pod_suspended(tmp_path: Path) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box"})
    driver = PlayedDriver({7: CudaState.CHECKPOINTED}, frozenset({("restore", 7)}))
    suspender = Suspender(driver, host, {})
    with pytest.raises(DeviceError, match=r"process 7 \(python3\) can't be resumed and stays suspended"):
        suspender.resume(suspender.processes([7]))
    assert driver.states[7] is CudaState.CHECKPOINTED


def test_a_suspension_that_was_killed_is_ended_by_resume(tmp_path: Path) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box", 8: f"{GROUP}/box"})
    driver = PlayedDriver({7: CudaState.CHECKPOINTED, 8: CudaState.LOCKED})
    suspender = Suspender(driver, host, {})
    suspender.resume(suspender.processes([7, 8]))
    assert set(driver.states.values()) == {CudaState.RUNNING}


@pytest.mark.parametrize(
    ("limit_mib", "free_mib", "words"),
    [
        (1024 + 1499, 100_000, "1500 MiB on GPUs don't fit into the 1499 MiB that its memory limit leaves"),
        (1024 + 1500, 512 + 1499, "1500 MiB on GPUs don't fit into the 1499 MiB of host memory that are free"),
    ],
)
def test_nothing_is_begun_without_room_in_host_memory(
    tmp_path: Path, limit_mib: int, free_mib: int, words: str
) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box", 8: f"{GROUP}/box"}, limit_mib=limit_mib, free_mib=free_mib)
    driver = PlayedDriver(dict.fromkeys((7, 8), CudaState.RUNNING))
    suspender = Suspender(driver, host, {7: 1000, 8: 500})
    with pytest.raises(InputError, match=words):
        suspender.suspend(suspender.processes([7, 8]), 10)
    assert not driver.calls


def test_it_fits_to_the_last_mib(tmp_path: Path) -> None:
    host = machine(tmp_path, {7: f"{GROUP}/box"}, limit_mib=1024 + 1500, free_mib=512 + 1500)
    suspender = Suspender(PlayedDriver({7: CudaState.RUNNING}), host, {7: 1500})
    assert len(suspender.suspend(suspender.processes([7]), 10)) == 1


def test_a_pod_of_another_node_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="this node has no pod team/other"):
        pod_uid(machine(tmp_path, {}), "team", "other")


class TestCommand:
    def test_suspend_and_resume(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        host = machine(tmp_path, {7: f"{GROUP}/box"})
        driver = PlayedDriver({7: CudaState.RUNNING})
        monkeypatch.setattr(node_suspend, "_open_suspender", lambda root: Suspender(driver, host, {7: 1000}))
        dry = CliRunner().invoke(node_suspend.suspend, ["train", "-n", "team", "--dry-run"])
        assert "running" in dry.output
        assert driver.states[7] is CudaState.RUNNING
        done = CliRunner().invoke(node_suspend.suspend, ["train", "-n", "team"])
        assert "suspended 1 process with 1000 MiB on GPUs" in done.output
        assert driver.states[7] is CudaState.CHECKPOINTED
        back = CliRunner().invoke(node_suspend.resume, ["train", "-n", "team"])
        assert "resumed 1 process" in back.output
        assert driver.states[7] is CudaState.RUNNING

    def test_a_pod_or_processes(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        suspender = Suspender(PlayedDriver({}), machine(tmp_path, {}), {})
        monkeypatch.setattr(node_suspend, "_open_suspender", lambda root: suspender)
        for arguments in ([], ["train", "--pid", "7"]):
            result = CliRunner().invoke(node_suspend.suspend, arguments)
            assert isinstance(result.exception, InputError)

    def test_a_pod_without_cuda(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        suspender = Suspender(PlayedDriver({}), machine(tmp_path, {7: f"{GROUP}/box"}), {})
        monkeypatch.setattr(node_suspend, "_open_suspender", lambda root: suspender)
        result = CliRunner().invoke(node_suspend.suspend, ["train", "-n", "team"])
        assert str(result.exception) == "no process of pod team/train uses CUDA here"
