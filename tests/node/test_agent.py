"""The agent as processes: wrong input at the start, children that die, signals, and the commands around it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.node.machines import FLEET, until
from tests.real_cluster.service import free_ports

from windlass.cli.main import cli
from windlass.model.errors import InputError
from windlass.node import agent, supervisor
from windlass.node.agent import AgentOptions
from windlass.node.agent_parts import is_disabled_by_label
from windlass.node.backend.protocol import DeviceError
from windlass.node.backend.simulated import SimulatedBackend
from windlass.node.supervisor import NO_DRIVER, RESTARTED_VARIABLE
from windlass.sharing.plugin_config import resolve_config
from windlass_bench.fake_kubelet import FakeKubelet

GPU = "nvidia.com/gpu"
WINDLASS = [sys.executable, "-c", "from windlass.cli.main import main; main()"]


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.fleet = folder / "fleet.yaml"
        self.fleet.write_text(FLEET)
        self.config = folder / "config.yaml"
        self.config.write_text("")
        (self.port,) = free_ports(1)
        self.kubelet = FakeKubelet(folder / "plugins")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def command(self, *more: str) -> list[str]:
        return [
            *(*WINDLASS, "node", "run", "--without-api", "--fleet", str(self.fleet)),
            *("--root", str(self.folder / "machine"), "--state", str(self.folder / "state")),
            *("--config-file", str(self.config), "--device-plugins", str(self.folder / "plugins")),
            *(
                "--cdi-folder",
                str(self.folder / "cdi"),
                "--listen",
                f"127.0.0.1:{self.port}",
                "--interval",
                "1",
            ),
            *more,
        ]

    def start(self, *more: str, count: int = 8) -> None:
        self.kubelet.start()
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(self.command(*more), stderr=log)
        until(lambda: len(self.kubelet.healthy_devices(GPU)) == count, 60, "the plugin is up")

    def children(self, name: str = "") -> list[int]:
        assert self.process is not None
        listed = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in listed if f"child\0{name}" in _command_line(int(pid))]

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
        self.kubelet.stop()


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    yield made
    made.stop()


class TestStart:
    @pytest.mark.parametrize(
        ("config", "words"),
        [
            ("flags: {migStrategy: some}", "flags.migStrategy"),
            ("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 1}]}}", "replicas"),
            ("flags: [", "is not YAML"),
        ],
    )
    def test_a_wrong_config_is_one_line_and_exit_2(self, scene: Scene, config: str, words: str) -> None:
        scene.config.write_text(config)
        done = subprocess.run(scene.command(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert words in line
        assert str(scene.config) in line

    def test_an_unknown_part_is_refused(self, scene: Scene) -> None:
        done = subprocess.run(
            scene.command("--parts", "plugins"), capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 2
        assert "Did you mean 'plugin'" in done.stderr

    def test_a_simulated_node_needs_a_folder(self, tmp_path: Path) -> None:
        fleet = tmp_path / "fleet.yaml"
        fleet.write_text(FLEET)
        command = [*WINDLASS, "node", "run", "--fleet", str(fleet)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 2
        assert "--root" in done.stderr


class TestWithoutADriver:
    """`failOnInitError`: a node whose driver isn't there yet is an error, or is waited for."""

    def options(self, folder: Path) -> AgentOptions:
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET)
        return AgentOptions(fleet=fleet, root=folder / "machine", without_api=True)

    def run(self, monkeypatch: pytest.MonkeyPatch, folder: Path, must: bool, failures: int) -> tuple[object, list[str]]:
        log: list[str] = []
        real = agent.make_backend

        def make(options: AgentOptions) -> object:
            nonlocal failures
            if failures:
                failures -= 1
                raise DeviceError("NVML can't be used: Driver Not Loaded")
            return real(options)

        monkeypatch.setattr(agent, "make_backend", make)
        monkeypatch.setattr(agent, "RETRY_SECONDS", 0.01)
        found = agent.wait_for_driver(self.options(folder), must, log.append, threading.Event())
        return found, log

    def test_it_must_be_there(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        with pytest.raises(DeviceError, match="Driver Not Loaded"):
            self.run(monkeypatch, tmp_path, True, 1)

    @pytest.mark.parametrize("run", [agent.run_plugin, agent.run_sidecar])
    def test_a_process_that_must_have_one_says_so_by_its_exit_code(
        self,
        monkeypatch: pytest.MonkeyPatch,
        tmp_path: Path,
        run: Callable[[AgentOptions], int],
        capsys: pytest.CaptureFixture[str],
    ) -> None:
        def no_driver(options: AgentOptions) -> object:
            raise DeviceError("NVML can't be used: Driver Not Loaded")

        monkeypatch.setattr(agent, "make_backend", no_driver)
        monkeypatch.setattr(agent, "_stop_on_signal", threading.Event)
        assert run(AgentOptions(state=tmp_path, without_api=True)) == NO_DRIVER
        assert "Driver Not Loaded" in capsys.readouterr().err

    def test_or_it_is_waited_for(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        found, log = self.run(monkeypatch, tmp_path, False, 3)
        assert isinstance(found, SimulatedBackend)
        assert len(log) == 3

    def test_a_host_whose_files_cant_be_read_is_named(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Some hosts keep the files of their first process even from root: the driver is there, and not found."""

        def no_driver(options: AgentOptions) -> object:
            raise DeviceError("NVML can't be used: Shared Library Not Found")

        monkeypatch.setattr(agent, "make_backend", no_driver)
        monkeypatch.setenv("HOST_ROOT", str(tmp_path / "hidden"))
        with pytest.raises(DeviceError, match="hidden can't be read: install with --mount-host-root"):
            agent.wait_for_driver(AgentOptions(), True, lambda line: None, threading.Event())
        (tmp_path / "hidden").mkdir()
        with pytest.raises(DeviceError, match=r"Not Found$"):
            agent.wait_for_driver(AgentOptions(), True, lambda line: None, threading.Event())

    @pytest.mark.parametrize("must", [False, True])
    def test_a_driver_that_is_there_is_taken(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, must: bool) -> None:
        found, log = self.run(monkeypatch, tmp_path, must, 0)
        assert isinstance(found, SimulatedBackend)
        assert not log

    def test_a_signal_ends_the_waiting(self, tmp_path: Path) -> None:
        stop = threading.Event()
        stop.set()
        assert agent.wait_for_driver(self.options(tmp_path), False, lambda line: None, stop) is None

    @pytest.mark.parametrize("must", ["true", "false"])
    def test_a_wrong_strategy_is_refused_with_or_without_a_driver(self, must: str) -> None:
        with pytest.raises(InputError, match="bogus"):
            resolve_config(None, {"FAIL_ON_INIT_ERROR": must, "MIG_STRATEGY": "bogus"})


class TestSupervisor:
    def start(self, program: str) -> subprocess.Popen[str]:
        commands = {"child": [sys.executable, "-c", program]}
        return subprocess.Popen(
            [sys.executable, "-S", "-E", supervisor.__file__, json.dumps(commands)],
            stderr=subprocess.PIPE,
            text=True,
        )

    @pytest.mark.parametrize("code", [2, 3])
    def test_what_no_number_of_tries_helps_ends_the_agent(self, code: int) -> None:
        process = self.start(f"raise SystemExit({code})")
        _, log = process.communicate(timeout=60)
        assert process.returncode == code
        assert "child can't start" in log

    @pytest.mark.parametrize("code", [1, 2, 3])
    def test_a_child_that_has_run_before_is_tried_again(self, code: int, tmp_path: Path) -> None:
        """It ends with 1 at first, and with the code after that."""
        program = (
            f"import os, pathlib; lives = pathlib.Path({str(tmp_path / 'lives')!r});"
            f"again = '{RESTARTED_VARIABLE}' in os.environ; lives.open('a').write('again ' if again else 'first ');"
            f"raise SystemExit({code} if again else 1)"
        )
        process = self.start(program)
        lives = tmp_path / "lives"
        until(lambda: lives.exists() and lives.read_text().count("again") >= 2, 30, "it is started again")
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert lives.read_text().startswith("first again again")


class TestProcesses:
    def test_what_a_node_is_called(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("socket.gethostname", lambda: "the-host")
        monkeypatch.delenv("NODE_NAME", raising=False)
        assert AgentOptions().node == "the-host"
        monkeypatch.setenv("NODE_NAME", "from-the-pod")
        assert AgentOptions().node == "from-the-pod"
        assert AgentOptions(node_name="given").node == "given"

    def test_who_is_started_for_which_parts(self, tmp_path: Path) -> None:
        def names(*parts: str, **more: Any) -> list[str]:
            return list(agent.child_commands(AgentOptions(parts=frozenset(parts), **more)))

        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG)
        assert names("plugin", "exporter", without_api=True) == ["plugin", "sidecar"]
        assert names("exporter", without_api=True) == ["sidecar"]
        assert names("plugin", without_api=True) == ["plugin"]
        assert names("plugin", kubeconfig=str(kubeconfig)) == ["plugin", "sidecar"], "for labels and events"
        assert names("plugin", kubeconfig=str(tmp_path / "none")) == ["plugin"]


KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{name: here, context: {cluster: here, user: me}}]
clusters: [{name: here, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: me, user: {token: t}}]
"""


class TestLife:
    def test_either_process_may_die_and_a_signal_ends_both(self, scene: Scene) -> None:
        scene.start()
        (sidecar,) = scene.children("sidecar")
        (plugin,) = scene.children("plugin")
        os.kill(sidecar, signal.SIGKILL)
        until(lambda: scene.children("sidecar") not in ([], [sidecar]), 20, "the exporter's process is back")
        assert scene.children("plugin") == [plugin], "the plugin was not touched"
        os.kill(plugin, signal.SIGKILL)
        until(lambda: len(scene.kubelet.registrations) == 2, 30, "the plugin is back and registered")
        until(lambda: len(scene.kubelet.healthy_devices(GPU)) == 8)
        assert scene.process is not None
        scene.process.send_signal(signal.SIGTERM)
        assert scene.process.wait(20) == 0
        assert not (scene.folder / "plugins/nvidia-gpu.sock").exists()

    def test_a_process_that_dies_over_a_broken_config_comes_back_with_the_last_good_one(self, scene: Scene) -> None:
        scene.config.write_text("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}")
        scene.start("--parts", "plugin", count=16)
        scene.config.write_text("flags: {migStrategy: some}")
        until(lambda: "the last good configuration stays" in scene.log, 20, "the mistake is told")
        (plugin,) = scene.children("plugin")
        os.kill(plugin, signal.SIGKILL)
        until(lambda: len(scene.kubelet.registrations) == 2, 30, "the plugin is back")
        until(lambda: len(scene.kubelet.healthy_devices(GPU)) == 16, 30, "with what was in force")
        assert scene.log.count("flags.migStrategy") >= 2
        scene.config.write_text("")
        until(lambda: len(scene.kubelet.healthy_devices(GPU)) == 8, 30, "and follows the file again")

    def test_a_port_that_is_taken_keeps_the_exporter_off_and_nothing_else(self, scene: Scene) -> None:
        with socket.create_server(("127.0.0.1", 0)) as owner:
            scene.port = owner.getsockname()[1]
            scene.start()
            until(lambda: "remove the other exporter on this node" in scene.log, 20, "it says why")
            assert len(scene.children()) == 2
        url = f"http://127.0.0.1:{scene.port}/metrics"

        def page() -> str:
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    return str(answer.read().decode())
            except OSError:
                return ""

        until(lambda: "DCGM_FI_DEV_GPU_TEMP" in page(), 30, "the exporter has the port once it is free")
        assert scene.log.count("remove the other exporter") == 1
        assert len(scene.kubelet.registrations) == 1, "the plugin was not touched"

    def test_files_that_lie_where_it_was_started_are_not_its_modules(
        self, scene: Scene, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        trap = scene.folder / "trap"
        trap.mkdir()
        for name in ("http", "json", "socket", "msgspec", "windlass", "grpc"):
            (trap / f"{name}.py").write_text("raise SystemExit('a stranger was imported')")
        monkeypatch.chdir(trap)
        installed = [WINDLASS[0], "-P", *WINDLASS[1:]]  # as the installed command does without the folder
        monkeypatch.setattr(sys.modules[__name__], "WINDLASS", installed)
        scene.start()
        assert "stranger" not in scene.log
        assert len(scene.children()) == 2

    def test_a_second_agent_refuses_by_name_and_leaves_no_trace(self, scene: Scene, tmp_path: Path) -> None:
        scene.config.write_text("flags: {plugin: {deviceListStrategy: cdi-cri}}")
        scene.start("--parts", "plugin")
        other = Scene(tmp_path / "other")
        other.kubelet = scene.kubelet
        other.config.write_text(scene.config.read_text())
        command = other.command("--parts", "plugin", "--device-plugins", str(scene.folder / "plugins"))
        with (other.folder / "log").open("wb") as log:
            other.process = subprocess.Popen(command, stderr=log)
        try:
            until(lambda: other.log.count("starting it again") >= 2, 30, "it is tried again")
        finally:
            other.process.terminate()
            other.process.wait(60)
        refusals = [line for line in other.log.splitlines() if "plugin: " in line]
        assert all("nvidia-gpu.sock: another device plugin serves nvidia.com/gpu" in line for line in refusals)
        assert not (other.folder / "cdi").exists()
        assert len(scene.kubelet.healthy_devices(GPU)) == 8
        assert len(scene.kubelet.registrations) == 1

    def test_without_their_supervisor_the_processes_end(self, scene: Scene) -> None:
        scene.start()
        children = scene.children()
        assert len(children) == 2
        assert scene.process is not None
        scene.process.kill()
        scene.process.wait(20)
        until(lambda: not any(map(_command_line, children)), 20, "nobody is left behind")
        assert not (scene.folder / "plugins/nvidia-gpu.sock").exists()

    def test_a_fault_is_injected_from_outside(self, scene: Scene) -> None:
        (scene.folder / "state").mkdir()
        (scene.folder / "state/device-plugin.off").touch()  # from a life in which somebody read labels
        scene.start("--parts", "plugin", "--reading-seconds", "0.2", "--quiet-seconds", "0.2")
        hardware = ["--fleet", str(scene.fleet), "--root", str(scene.folder / "machine"), "--gpu", "6"]
        subprocess.run([*WINDLASS, "node", "fault", *hardware, "--xid", "79", "--lost"], check=True, timeout=60)
        until(lambda: len(scene.kubelet.healthy_devices(GPU)) == 7, 20, "it is seen")
        (plugin,) = scene.children("plugin")
        maps = Path(f"/proc/{plugin}/maps").read_text()
        assert "cygrpc" in maps
        assert "libcrypto" not in maps, "what it never uses is not loaded"
        subprocess.run([*WINDLASS, "node", "fault", *hardware, "--heal"], check=True, timeout=60)
        until(lambda: len(scene.kubelet.healthy_devices(GPU)) == 8, 30, "it is healed")

    def test_the_agent_loads_no_numpy(self, scene: Scene) -> None:
        code = (
            "import sys, windlass.node.child, windlass.node.plugin.process, windlass.node.sidecar;"
            "import windlass.node.backend.simulated, windlass.node.backend.nvml;"
            "sys.exit(bool({'numpy', 'numba'} & set(sys.modules)))"
        )
        assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


class TestCommands:
    def invoke(self, *arguments: str) -> tuple[int, str, str]:
        done = CliRunner().invoke(cli, [*arguments], standalone_mode=False)
        code = done.return_value if isinstance(done.return_value, int) else 0
        if done.exception is not None:
            raise done.exception
        return code, done.stdout, done.stderr

    def hardware(self, folder: Path) -> list[str]:
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET)
        return ["--fleet", str(fleet), "--root", str(folder / "machine")]

    def test_validate(self, tmp_path: Path) -> None:
        hardware = self.hardware(tmp_path)
        code, out, _ = self.invoke("node", "validate", *hardware, "-o", "json")
        assert code == 0
        assert json.loads(out)["passed"]
        self.invoke("node", "fault", *hardware, "--gpu", "1", "--recovery-action", "1")
        code, out, err = self.invoke("node", "validate", *hardware)
        assert code == 1
        assert "reset the GPU" in out
        assert "not fit" in err

    def test_explain_config(self, tmp_path: Path) -> None:
        config = tmp_path / "config.yaml"
        config.write_text(
            "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
        )
        _, out, _ = self.invoke("node", "explain-config", str(config), *self.hardware(tmp_path), "-o", "json")
        (resource,) = json.loads(out)["resources"]
        assert (resource["name"], resource["count"]) == ("nvidia.com/gpu.shared", 32)

    def test_explain_config_in_a_config_map(self, tmp_path: Path) -> None:
        entry = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}"
        file = tmp_path / "map.yaml"
        command = ("node", "explain-config", str(file), *self.hardware(tmp_path), "-o", "json")
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"any": entry}}))
        _, out, _ = self.invoke(*command)
        assert [resource["count"] for resource in json.loads(out)["resources"]] == [32]
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "data": {"any": entry, "plain": "{}"}}))
        with pytest.raises(InputError, match="there are: any, plain"):
            self.invoke(*command)
        _, out, _ = self.invoke(*command, "--key", "plain")
        assert [resource["count"] for resource in json.loads(out)["resources"]] == [8]

    def test_plan_mig(self, tmp_path: Path) -> None:
        hardware = self.hardware(tmp_path)
        code, out, _ = self.invoke("plan", "mig", "all-balanced", *hardware, "-o", "json")
        document = json.loads(out)
        assert code == 0
        assert (document["kind"], document["possible"], len(document["gpus"])) == ("MigPlan", True, 8)
        assert document["gpus"][0]["steps"][0] == "MIG mode on"
        _, table, _ = self.invoke("plan", "mig", "all-balanced", *hardware)
        assert "create 3g.40gb at slice 4" in table

    def test_plan_mig_says_what_is_in_the_way(self, tmp_path: Path) -> None:
        hardware = self.hardware(tmp_path)
        _, out, _ = self.invoke("plan", "mig", "all-disabled", *hardware, "-o", "json")
        uuid = json.loads(out)["gpus"][3]["uuid"]
        code, table, _ = self.invoke("plan", "mig", "all-1g.10gb", *hardware, "--in-use", uuid)
        assert code == 1
        assert "drain it first" in table

    def test_labels(self, tmp_path: Path) -> None:
        _, out, _ = self.invoke("node", "labels", *self.hardware(tmp_path))
        assert "nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3\n" in out

    def test_advise(self) -> None:
        words = ["--gpu", "H200", "--tenants", "7", "--memory", "12", "--isolation", "strict"]
        _, out, _ = self.invoke("node", "advise", *words, "-o", "json")
        assert json.loads(out)["way"] == "mig"


class TestDeployLabels:
    @pytest.mark.parametrize(
        ("value", "off"),
        [
            ("true", False),
            ("", False),
            ("windlass", False),
            ("false", True),
            ("paused-for-mig-change", True),
            ("windlass_paused-for-driver-upgrade", True),
        ],
    )
    def test_deploy_labels_switch_parts(self, value: str, off: bool) -> None:
        assert is_disabled_by_label("plugin", {"nvidia.com/gpu.deploy.device-plugin": value}) is off
        assert not is_disabled_by_label("plugin", {})
        assert is_disabled_by_label("mig", {"nvidia.com/gpu.deploy.operands": "false"})
