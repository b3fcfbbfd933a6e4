"""The node agent on a real GPU, recorded: run as root on a machine with one, beside a kubelet that only speaks gRPC.

    python tools/gpu/agent.py [--out FOLDER]

Starts `windlass node run` on NVML, plays the kubelet, and writes down what it is told: devices, the validator's gate,
what Allocate returns under each strategy, the CDI spec checked against the machine's device nodes, an application's
Xid, a change of MIG layout while it runs, and how much memory the processes take. Everything is restored at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from windlass.node.backend.nvml import NvmlBackend  # noqa: E402
from windlass.node.cdi import check_spec, read_spec  # noqa: E402
from windlass.node.host_root import HostRoot  # noqa: E402
from windlass.node.mig_apply import apply_plans  # noqa: E402
from windlass.sharing.mig_plan import plan_gpu  # noqa: E402
from windlass_bench.fake_kubelet import FakeKubelet  # noqa: E402  (the path comes first)

GPU = "nvidia.com/gpu"
STRATEGIES = ("envvar", "volume-mounts", "cdi-cri", "cdi-annotations")
STRAY = """
import ctypes
from windlass.node.validator.cuda import Cuda
from tools.gpu.kernels import STRAY
cuda = Cuda()
cuda.launch(cuda.kernel(STRAY, "stray"), 1, 1, (ctypes.c_uint64(7),))
cuda.wait()
"""


class Recorder:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.backend = NvmlBackend()
        self.record: dict[str, Any] = {}
        self.kubelet = FakeKubelet(folder / "plugins")
        self.kubelet.start()
        self.config = folder / "config.yaml"
        self.log = folder / "agent.log"
        self.agent: subprocess.Popen[bytes] | None = None
        self.failed: list[str] = []

    @property
    def uuid(self) -> str:
        return self.backend.inventory().gpus[0].uuid

    def section(self, name: str, run: Callable[[], Any]) -> None:
        begun = time.monotonic()
        try:
            found = run()
        except Exception as error:
            traceback.print_exc(limit=4, file=sys.stdout)
            found = {"failed": f"{type(error).__name__}: {error}"}
            self.failed.append(name)
        self.record[name] = {"took_s": round(time.monotonic() - begun, 2), "found": found}
        print(f"=== {name}: {json.dumps(self.record[name], default=str)[:3000]}", flush=True)

    def start(self) -> Any:
        self.config.write_text("flags: {migStrategy: mixed, plugin: {passDeviceSpecs: true}}")
        command = [
            *(
                sys.executable,
                "-c",
                "from windlass.cli.main import main; main()",
                "node",
                "run",
                "--without-api",
            ),
            *("--config-file", str(self.config), "--state", str(self.folder / "state")),
            *("--device-plugins", str(self.folder / "plugins"), "--cdi-folder", str(self.folder / "cdi")),
            *(
                "--output-file",
                str(self.folder / "features/gfd"),
                "--listen",
                "127.0.0.1:9400",
                "--interval",
                "1",
            ),
        ]
        paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        begun = time.monotonic()
        with self.log.open("wb") as log:
            self.agent = subprocess.Popen(command, stderr=log, env={**os.environ, "PYTHONPATH": paths})
        self._until(lambda: GPU in self.kubelet.device_lists)
        listed = time.monotonic() - begun
        self._until(lambda: self.kubelet.healthy_devices(GPU))
        return {
            "registered_s": round(listed, 2),
            "healthy_s": round(time.monotonic() - begun, 2),
            "devices": dict(self.kubelet.device_lists),
            "registration": str(self.kubelet.registrations[0]),
        }

    def allocate(self) -> Any:
        found = {}
        for strategy in STRATEGIES:
            self.config.write_text(f"flags: {{migStrategy: mixed, plugin: {{deviceListStrategy: {strategy}}}}}")
            told = f"deviceListStrategy: {strategy}"
            time.sleep(1.2)  # the agent looks twice a second
            found[told] = str(self.kubelet.allocate(GPU, self.uuid))
        return found

    def cdi(self) -> Any:
        file = self.folder / "cdi/k8s.device-plugin.nvidia.com-gpu.json"
        spec = read_spec(file.read_bytes())
        check_spec(spec, HostRoot())
        nodes = [node for device in spec.devices for node in device.container_edits.device_nodes]
        return {
            "kind": spec.kind,
            "version": spec.cdi_version,
            "devices": [device.name for device in spec.devices],
            "nodes": sorted({f"{node.path} {node.major}:{node.minor}" for node in nodes}),
            "common_nodes": [f"{node.path} {node.major}:{node.minor}" for node in spec.container_edits.device_nodes],
            "mounts": len(spec.container_edits.mounts),
            "hooks": [hook.args[:3] for hook in spec.container_edits.hooks],
        }

    def xid(self) -> Any:
        updates = self.kubelet.updates[GPU]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", STRAY], env=environment, capture_output=True, timeout=60, check=False)
        self._until(lambda: "Xid" in self.log.read_text(), 10)
        told = [line for line in self.log.read_text().splitlines() if "Xid" in line]
        time.sleep(2.5)  # the exporter's next pass
        metric = [line for line in self._metrics().splitlines() if line.startswith("DCGM_FI_DEV_XID_ERRORS{")]
        return {
            "log": told,
            "kubelet_updates": self.kubelet.updates[GPU] - updates,
            "healthy": self.kubelet.healthy_devices(GPU),
            "metric": metric,
        }

    def memory(self) -> Any:
        """Resident memory of the three processes after half a minute of work."""
        time.sleep(15)
        assert self.agent is not None
        pids = [self.agent.pid, *_children(self.agent.pid)]
        found = {}
        for pid in pids:
            status = Path(f"/proc/{pid}/status").read_text()
            command = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
            child = "windlass.node.child"
            name = command[command.index(child) + 1] if child in command else "supervisor"
            found[name] = {
                line.split(":")[0]: round(int(line.split()[1]) / 1024, 1)
                for line in status.splitlines()
                if line.startswith(("VmRSS", "RssAnon", "VmHWM"))
            }
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            found[name] |= {
                line.split(":")[0]: round(int(line.split()[1]) / 1024, 1)
                for line in rollup
                if line.startswith(("Pss:", "Private_Clean:", "Private_Dirty:"))
            }
            ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found[name]["cpu_s"] = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        return {
            "processes": found,
            "total_mib": round(sum(each["VmRSS"] for each in found.values()), 1),
            "shared_pages_once_mib": round(sum(each["Pss"] for each in found.values()), 1),
            "page_bytes": len(self._metrics()),
        }

    def mig(self) -> Any:
        """The layout changes under the running agent; the kubelet hears of it, and of the way back."""
        self.config.write_text("flags: {migStrategy: mixed, plugin: {deviceListStrategy: [envvar, cdi-cri]}}")
        name = "nvidia.com/mig-1g.18gb"
        begun = time.monotonic()
        apply_plans(self.backend, [plan_gpu(self.backend.inventory().gpus[0], {"1g.18gb": 7}, enabled=True)])
        cut = time.monotonic() - begun
        self._until(lambda: len(self.kubelet.healthy_devices(name)) == 7, 60)
        told = time.monotonic() - begun
        first = self.kubelet.healthy_devices(name)[0]
        answer = str(self.kubelet.allocate(name, first))
        spec = read_spec((self.folder / "cdi/k8s.device-plugin.nvidia.com-gpu.json").read_bytes())
        check_spec(spec, HostRoot())
        self._until(lambda: "GPU_I_ID" in self._metrics(), 20)
        page = [line for line in self._metrics().splitlines() if "GPU_I_ID" in line][:12]
        file = self.folder / "features/gfd"
        labels = file.read_text().splitlines() if file.exists() else []
        apply_plans(self.backend, [plan_gpu(self.backend.inventory().gpus[0], {}, enabled=False)])
        self._until(lambda: self.kubelet.healthy_devices(GPU) and not self.kubelet.devices(name), 60)
        return {
            "cut_s": round(cut, 2),
            "kubelet_told_s": round(told, 2),
            "allocate": answer,
            "cdi_devices": [device.name for device in spec.devices],
            "metrics": page,
            "labels_file": labels[:8],
        }

    def restore(self) -> Any:
        if self.agent is not None:
            self.agent.send_signal(signal.SIGTERM)
            self.agent.wait(20)
        gpu = self.backend.inventory().gpus[0]
        if gpu.mig_enabled:
            apply_plans(self.backend, [plan_gpu(gpu, {}, enabled=False)])
        self.kubelet.stop()
        after = self.backend.inventory().gpus[0]
        return {"mig": after.mig_enabled, "agent_exit": self.agent.returncode if self.agent else None}

    def _metrics(self) -> str:
        try:
            with urllib.request.urlopen("http://127.0.0.1:9400/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    @staticmethod
    def _until(condition: Callable[[], object], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(f"not within {seconds:g} s")
            time.sleep(0.02)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    out: Path = parser.parse_args().out
    with tempfile.TemporaryDirectory(prefix="agent") as folder:
        recorder = Recorder(Path(folder))
        try:
            for name in ("start", "allocate", "cdi", "xid", "memory", "mig"):
                recorder.section(name, getattr(recorder, name))
        finally:
            recorder.section("restore", recorder.restore)
            recorder.record["log"] = recorder.log.read_text()[-20_000:] if recorder.log.exists() else ""
            (out / "agent.json").write_text(json.dumps(recorder.record, indent=1, default=str))
    if recorder.failed:
        print(f"FAILED: {', '.join(recorder.failed)}", flush=True)
    return 1 if recorder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
