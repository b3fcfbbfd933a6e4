"""Pods as processes of this machine: environment, exit codes, signals, logs, exec, devices."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from tests.embedded.runtime.host import Host, one_gpu

from windlass.embedded.runtime.kubelet_api import STDOUT, ExecRequest, KubeletApiError
from windlass.embedded.runtime.process.cgroups import Cgroups
from windlass.embedded.runtime.process.container_runtime import CHUNK_BYTES
from windlass.embedded.runtime.process.leftovers import OWNER_VARIABLE, process_identity
from windlass.embedded.runtime.process.log_buffer import MAX_BYTES
from windlass.embedded.runtime.process.this_machine import discover_this_machine
from windlass.model.unstructured import Unstructured

GPU = "nvidia.com/gpu"
TRAP = """
import signal, sys, time
stopped = []
signal.signal(signal.SIGTERM, lambda number, frame: stopped.append(number))
print("ready", flush=True)
while not stopped:
    time.sleep(0.01)
print("saving", flush=True)
sys.exit(7)
"""


@pytest_asyncio.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path)
    try:
        yield host
    finally:
        await host.close()


@pytest_asyncio.fixture
async def gpu_host(tmp_path: Path) -> AsyncIterator[Host]:
    host = Host(tmp_path, one_gpu, replicas=2)
    try:
        yield host
    finally:
        await host.close()


def ended(pod: Unstructured) -> Unstructured:
    found: Unstructured = pod["status"]["containerStatuses"][0]["state"]["terminated"]
    return found


@pytest.mark.asyncio
class TestLife:
    async def test_runs_and_ends(self, host: Host) -> None:
        host.start("p", "sh", "-c", "echo out; echo err >&2; echo $GREETING", env={"GREETING": "hi"})
        pod = await host.until_phase("p", "Succeeded")
        assert ended(pod)["exitCode"] == 0
        assert await host.logs("p") == "out\nerr\nhi\n"
        assert (await host.logs("p", timestamps=True)).splitlines()[0].endswith("Z out")

    async def test_exit_code(self, host: Host) -> None:
        host.start("p", "sh", "-c", "exit 3")
        pod = await host.until_phase("p", "Failed")
        assert (ended(pod)["exitCode"], ended(pod)["reason"]) == (3, "Error")

    async def test_no_command_is_explained(self, host: Host) -> None:
        host.start("p")
        await host.until(lambda: "message" in _waiting(host.pod("p")))
        waiting = _waiting(host.pod("p"))
        assert waiting["reason"] == "CreateContainerError"
        assert "runs no images: give container main a `command`" in waiting["message"]

    async def test_a_command_that_is_not_here(self, host: Host) -> None:
        host.start("p", "no-such-program-anywhere")
        await host.until(lambda: "message" in _waiting(host.pod("p")))
        assert "executable file not found" in _waiting(host.pod("p"))["message"]

    async def test_restarts(self, host: Host) -> None:
        host.start("p", "sh", "-c", "echo again; exit 1", restartPolicy="OnFailure")
        await host.until(lambda: host.pod("p")["status"].get("containerStatuses", [{}])[0].get("restartCount") == 1)
        await host.until(lambda: _waiting(host.pod("p")).get("reason") == "CrashLoopBackOff")
        assert await host.logs("p", previous=True) == "again\n"

    async def test_sigterm_lets_it_save(self, host: Host) -> None:
        host.start("p", sys.executable, "-c", TRAP)
        await host.until_logged("p", "ready")
        process = host.nodes._runtime.processes(host.pod("p"), "main")[-1]
        host.verbs.delete("pods", "default", "p", grace=60)
        await host.until(lambda: host.verbs.find("pods", "default", "p") is None)
        assert process.is_over
        assert process.log.text == b"ready\nsaving\n"
        found = process.poll(time.time())
        assert found is not None
        assert found.code == 7

    async def test_sigkill_after_the_grace_period_for_all_of_it(self, host: Host) -> None:
        script = "trap '' TERM; sleep 600 & echo child $!; wait; sleep 600"
        host.start("p", "sh", "-c", script)
        await host.until_logged("p", "child")
        child = int((await host.logs("p")).split()[1])
        host.verbs.delete("pods", "default", "p", grace=1)
        await host.until(lambda: host.verbs.find("pods", "default", "p") is None)
        await host.until(lambda: not _is_alive(child))

    async def test_processes_end_with_the_cluster(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.start("p", "sh", "-c", "echo pid $$$$; sleep 600")
        await host.until_logged("p", "pid")
        pid = int((await host.logs("p")).split()[1])
        await host.close()
        assert not _is_alive(pid)


DETACHED = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
"""
"""A daemon: a session of its own, its parent gone."""
ABANDONED = """
import asyncio, sys
from pathlib import Path
from tests.embedded.runtime.host import Host

async def main():
    host = Host(Path(sys.argv[1]))
    host.start("p", sys.executable, "-c", sys.argv[2] + "time.sleep(600)")
    while not (text := await host.logs("p") if host.nodes._runtime.processes(host.pod("p"), "main") else ""):
        await asyncio.sleep(0.02)
    print(text, flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


@pytest.mark.asyncio
class TestWholePods:
    async def test_a_daemon_ends_with_its_pod(self, host: Host) -> None:
        host.start("p", sys.executable, "-c", DETACHED + "time.sleep(600)")
        await host.until_logged("p", "\n")
        daemon = int(await host.logs("p"))
        assert _is_alive(daemon)
        host.verbs.delete("pods", "default", "p", grace=0)
        await host.until(lambda: not _is_alive(daemon))

    async def test_and_when_the_command_ends(self, host: Host) -> None:
        host.start("p", sys.executable, "-c", DETACHED + "time.sleep(1)")
        await host.until_phase("p", "Succeeded")
        assert not _is_alive(int(await host.logs("p")))

    async def test_what_exec_has_started_ends_with_it(self, host: Host) -> None:
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        command = (sys.executable, "-c", DETACHED + "time.sleep(600)")
        session = await host.nodes.kubelet_api.exec(host.pod("p"), ExecRequest(command=command))
        daemon = int((await anext(aiter(session.output())))[1])
        await session.close()
        assert not _is_alive(daemon)

    async def test_a_daemon_ends_when_windlass_up_is_killed(self, tmp_path: Path, host: Host) -> None:
        root = Path(__file__).parents[3]
        command = [sys.executable, "-c", ABANDONED, str(tmp_path), DETACHED]
        up = subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True)
        assert up.stdout is not None
        daemon = int(await asyncio.to_thread(up.stdout.readline))
        assert _is_alive(daemon)
        up.kill()
        up.wait()
        await host.until(lambda: not _is_alive(daemon))

    async def test_leftovers_of_a_killed_launcher_are_found_at_the_next_start(self, tmp_path: Path) -> None:
        gone = {**os.environ, OWNER_VARIABLE: "999999999-1"}
        here = {**os.environ, OWNER_VARIABLE: process_identity(os.getpid())}
        left, ours = (subprocess.Popen(["sleep", "600"], env=env, start_new_session=True) for env in (gone, here))
        try:
            host = Host(tmp_path)
            assert left.wait(60) == -9
            assert ours.poll() is None
            assert "killed 1 processes that pods of an earlier windlass up had left running" in host.nodes.notes
            await host.close()
        finally:
            ours.kill()
            ours.wait()


@pytest.mark.asyncio
class TestOutput:
    async def test_what_has_no_end_of_line_is_shown(self, host: Host) -> None:
        host.start("p", "sh", "-c", "printf 'password: '; sleep 600")
        await host.until_logged("p", "password: ")
        assert await host.logs("p", tail_lines=1) == "password: "

    @pytest.mark.parametrize("command", [["cat", "/dev/zero"], ["yes"], ["yes", "x" * 5000]])
    async def test_a_flood_stops_nobody_and_is_bounded(self, host: Host, command: list[str]) -> None:
        host.start("flood", *command)
        await host.until(lambda: host.nodes._runtime.processes(host.pod("flood"), "main"))
        (process,) = host.nodes._runtime.processes(host.pod("flood"), "main")
        await host.until(lambda: process.log.end > 2 * MAX_BYTES)
        host.start("other", "true")
        await host.until_phase("other", "Succeeded")
        assert len(process.log.text) <= MAX_BYTES + CHUNK_BYTES
        host.verbs.delete("pods", "default", "flood", grace=0)
        await host.until(lambda: host.verbs.find("pods", "default", "flood") is None)

    async def test_input_that_nobody_reads_stops_nobody(self, host: Host) -> None:
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        for tty in (True, False):
            request = ExecRequest(command=("sleep", "600"), stdin=True, tty=tty)
            session = await host.nodes.kubelet_api.exec(host.pod("p"), request)
            writing = asyncio.create_task(session.write(b"x\n" * 500_000))
            assert await host.exec("p", "echo", "hello") == ("hello\n", "", 0)
            assert not writing.done()
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await session.close()

    async def test_many_terminals(self, host: Host) -> None:
        """None of them holds a thread."""
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        request = ExecRequest(command=("cat",), stdin=True, tty=True)
        sessions = [await host.nodes.kubelet_api.exec(host.pod("p"), request) for _ in range(12)]
        readers = [asyncio.create_task(anext(aiter(session.output()))) for session in sessions]
        await sessions[-1].write(b"echo\n")
        assert b"echo" in (await readers[-1])[1]
        for reader in readers:
            reader.cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        for session in sessions:
            await session.close()


@pytest.mark.asyncio
class TestExec:
    async def test_in_the_pod_s_environment(self, host: Host) -> None:
        host.start("p", "sleep", "600", env={"A": "1"})
        await host.until_phase("p", "Running")
        assert await host.exec("p", "sh", "-c", "echo $A; echo oops >&2; exit 4") == ("1\n", "oops\n", 4)

    async def test_input(self, host: Host) -> None:
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        session = await host.nodes.kubelet_api.exec(host.pod("p"), ExecRequest(command=("cat",), stdin=True))
        await session.write(b"through\n")
        await session.end_input()
        assert [piece async for piece in session.output()] == [(STDOUT, b"through\n")]
        assert await session.exit_code() == 0
        await session.close()

    async def test_a_terminal(self, host: Host) -> None:
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        out, _, code = await host.exec("p", "sh", "-c", "test -t 0 && echo terminal", tty=True, stdin=True)
        assert (out.strip(), code) == ("terminal", 0)

    async def test_closing_ends_it(self, host: Host) -> None:
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        session = await host.nodes.kubelet_api.exec(host.pod("p"), ExecRequest(command=("sleep", "600")))
        await session.close()
        assert await session.exit_code() == 137

    async def test_nothing_runs_there(self, host: Host) -> None:
        host.start("p", "true")
        await host.until_phase("p", "Succeeded")
        with pytest.raises(KubeletApiError, match="container not found"):
            await host.exec("p", "true")

    async def test_nvidia_smi_of_a_pod_without_gpus(self, host: Host) -> None:
        host.start("p", "sleep", "600")
        await host.until_phase("p", "Running")
        out, _, code = await host.exec("p", "nvidia-smi")
        assert (code, "No devices were found" in out) == (6, True)


@pytest.mark.asyncio
class TestDevices:
    async def test_a_machine_without_a_driver_has_none_and_says_why(self, host: Host) -> None:
        assert GPU not in host.verbs.get("nodes", "", host.name)["status"]["allocatable"]
        assert host.nodes.notes[0] == "GPUs of this machine: none (NVML can't be used: Driver Not Loaded)"

    async def test_shared_between_two_and_no_more(self, gpu_host: Host) -> None:
        node = gpu_host.verbs.get("nodes", "", gpu_host.name)
        assert node["status"]["allocatable"][GPU] == "2"
        assert node["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-H200-SHARED"
        for name in ("a", "b", "c"):
            gpu_host.start(name, "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 600", limits={GPU: "1"})
        await gpu_host.until_logged("a", "GPU-")
        await gpu_host.until_logged("b", "GPU-")
        assert await gpu_host.logs("a") == await gpu_host.logs("b")
        pod = await gpu_host.until_phase("c", "Failed")
        assert pod["status"]["reason"] == "UnexpectedAdmissionError"

    async def test_who_asks_for_none_sees_none(self, gpu_host: Host) -> None:
        gpu_host.start("p", "sh", "-c", 'echo "[$CUDA_VISIBLE_DEVICES][$NVIDIA_VISIBLE_DEVICES]"')
        await gpu_host.until_phase("p", "Succeeded")
        assert await gpu_host.logs("p") == "[][void]\n"


class TestCgroups:
    def test_version_two(self, tmp_path: Path) -> None:
        (tmp_path / "cgroup.controllers").write_text("cpu memory")
        (tmp_path / "cgroup.subtree_control").touch()
        groups = Cgroups(tmp_path, "w")
        group = groups.create("pod", memory=1 << 20, milli_cpu=500)
        assert group is not None
        assert (tmp_path / "w/pod/memory.max").read_text() == str(1 << 20)
        assert (tmp_path / "w/pod/cpu.max").read_text() == "50000 100000"
        assert group.procs == (tmp_path / "w/pod/cgroup.procs",)
        assert not group.was_oom_killed()
        (tmp_path / "w/pod/memory.events").write_text("low 0\noom_kill 1\n")
        assert group.was_oom_killed()
        (tmp_path / "w/pod/cgroup.kill").touch()
        group.kill()
        assert (tmp_path / "w/pod/cgroup.kill").read_text() == "1"
        assert groups.create("unlimited") is not None, "it is killed whole, too"

    def test_version_one(self, tmp_path: Path) -> None:
        for controller in ("memory", "cpu"):
            (tmp_path / controller).mkdir()
        groups = Cgroups(tmp_path, "w")
        assert groups.create("pod", memory=0, milli_cpu=0) is None, "nothing to limit"
        group = groups.create("pod", memory=1 << 20, milli_cpu=500)
        assert group is not None
        assert [folder.parent.parent.name for folder in group.folders] == ["memory", "cpu"]

    def test_none_is_said(self, tmp_path: Path) -> None:
        groups = Cgroups(tmp_path / "none")
        assert groups.create("pod", memory=1) is None
        assert "does not exist" in groups.unavailable_reason


def _waiting(pod: Unstructured) -> Unstructured:
    statuses = pod["status"].get("containerStatuses") or [{}]
    found: Unstructured = statuses[0].get("state", {}).get("waiting") or {}
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return status != "Z"


def test_sharing_by_mps_is_what_the_node_says(tmp_path: Path) -> None:
    found, _ = discover_this_machine(one_gpu, 2, str(tmp_path), 0.0)
    labels = found.node["metadata"]["labels"]
    assert labels["nvidia.com/gpu.sharing-strategy"] == "mps"
    assert labels["nvidia.com/mps.capable"] == "true"
    assert found.node["status"]["allocatable"][GPU] == "2"
