"""What the node agent does on a real GPU, recorded: run as root on a machine with one, it prints the record again.

    python tools/gpu/record.py [--out FOLDER] [--only SECTION,…] [--seconds 0.6]

Each section stands alone: one that fails says so, and the next one runs. Whatever happens, the GPU is left as it was
found: MIG off, default compute mode, no MPS daemon, no process of ours. Writes record.json into the folder (default:
$OUT, else here) and a readable account to standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "src")]

import msgspec  # noqa: E402  (the path comes first)
from kinds import KINDS  # noqa: E402
from observe import in_background, metric_values, shell, smi  # noqa: E402
from tenants import Tenants  # noqa: E402

from windlass.node.backend.nvml import NvmlBackend  # noqa: E402
from windlass.node.backend.protocol import DeviceError  # noqa: E402
from windlass.node.exporter.collect import collect_families  # noqa: E402
from windlass.node.exporter.collection_context import CollectionContext  # noqa: E402
from windlass.node.exporter.counters import default_counters  # noqa: E402
from windlass.node.exporter.prometheus_text import write_text  # noqa: E402
from windlass.node.host_root import HostRoot  # noqa: E402
from windlass.node.labels.features import node_labels  # noqa: E402
from windlass.node.mig_apply import apply_plans, describe_step  # noqa: E402
from windlass.node.mps import MpsDaemon  # noqa: E402
from windlass.node.validator.checks import validate  # noqa: E402
from windlass.node.validator.compute import compute_in_process  # noqa: E402
from windlass.node.xid import lookup_xid  # noqa: E402
from windlass.sharing.inventory import Gpu  # noqa: E402
from windlass.sharing.mig_plan import plan_gpu  # noqa: E402
from windlass.sharing.plugin_config import PluginConfig  # noqa: E402

SEVEN = {"1g.18gb": 7}
LAYOUTS: tuple[dict[str, int], ...] = (
    SEVEN,
    {"1g.18gb": 1, "2g.35gb": 1, "3g.71gb": 1},
    {"4g.71gb": 1, "3g.71gb": 1},
    {"1g.18gb+me": 1, "1g.35gb": 1, "2g.35gb": 1},
)


class Recorder:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.backend = NvmlBackend()
        self.record: dict[str, Any] = {}

    @property
    def gpu(self) -> Gpu:
        return self.backend.inventory().gpus[0]

    def section(self, name: str, run: Callable[[], Any]) -> None:
        print(f"\n=== {name}", flush=True)
        begun = time.monotonic()
        try:
            found = run()
        except Exception as error:
            traceback.print_exc(limit=4, file=sys.stdout)
            found = {"failed": f"{type(error).__name__}: {error}"}
        self.record[name] = {"took_s": round(time.monotonic() - begun, 2), "found": found}
        print(json.dumps(self.record[name], indent=1, default=str)[:6000], flush=True)

    def machine(self) -> Any:
        return {
            "python": sys.version,
            "kernel": platform.release(),
            "cores": os.cpu_count(),
            "root": os.geteuid() == 0,
            "mps": shutil.which("nvidia-cuda-mps-control"),
            "nvidia_smi": shell("nvidia-smi"),
            "devices": sorted(str(path) for path in Path("/dev").glob("nvidia*")),
        }

    def discovery(self) -> Any:
        begun = time.perf_counter()
        inventory = self.backend.inventory()
        took = time.perf_counter() - begun
        gpu = inventory.gpus[0]
        geometry = gpu.geometry
        return {
            "inventory": msgspec.to_builtins(inventory),
            "inventory_ms": round(1000 * took, 2),
            "nvidia_smi": smi(),
            "pci": [vars(each) for each in HostRoot().pci_gpus()],
            "geometry": geometry.name if geometry else None,
            "profiles": shell("nvidia-smi", "mig", "-lgip"),
            "placements": shell("nvidia-smi", "mig", "-lgipp"),
        }

    def labels(self) -> Any:
        machine = HostRoot().read("/sys/class/dmi/id/product_name")
        labels = node_labels(self.backend.inventory(), PluginConfig(), machine=machine, timestamp=0)
        said = smi()
        agree = {
            "product": labels["nvidia.com/gpu.product"] == said["name"].replace(" ", "-"),
            "memory": labels["nvidia.com/gpu.memory"] == said["memory.total"],
            "driver": labels["nvidia.com/cuda.driver-version.full"] == said["driver_version"],
            "compute": f"{labels['nvidia.com/gpu.compute.major']}.{labels['nvidia.com/gpu.compute.minor']}"
            == said["compute_cap"],
        }
        return {"labels": labels, "agrees_with_nvidia_smi": agree}

    def exporter(self) -> Any:
        """Values under load beside nvidia-smi's, taken at the same time; then what a pass costs."""
        view = CollectionContext(hostname="node")
        counters = default_counters()
        pairs = []
        with Tenants([{}]) as tenants:
            ready = tenants.ready()
            for kind in ("tensor-full", "stream-large"):
                collect_families(self.backend, counters, view)
                worker = in_background(tenants, kind, 4.0)
                time.sleep(2.0)
                families = collect_families(self.backend, counters, view)
                said = smi()
                text = write_text(families)
                pairs.append({"kind": kind, "nvidia_smi": said, "exporter": metric_values(text)})
                pairs[-1]["answer"] = worker()
        passes = []
        for _ in range(20):
            begun = time.perf_counter()
            text = write_text(collect_families(self.backend, counters, view))
            passes.append(time.perf_counter() - begun)
        passes.sort()
        return {"ready": ready, "under_load": pairs, "pass_ms_p50": round(1000 * passes[10], 2), "page": text}

    def validator(self) -> Any:
        found = validate(self.backend, HostRoot(), compute_in_process)
        return {"passed": found.passed, "checks": msgspec.to_builtins(found.checks)}

    def xids(self) -> Any:
        """A stray write: the driver reports it, and the device stays usable."""
        self.backend.wait_for_faults(0.0)
        code = (
            "import ctypes\nfrom windlass.node.validator.cuda import Cuda\n"
            "from kernels import STRAY\n"
            "cuda=Cuda();cuda.launch(cuda.kernel(STRAY,'stray'),1,1,(ctypes.c_uint64(7),));cuda.wait()"
        )
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        faults = []
        until = time.monotonic() + 5
        while time.monotonic() < until:
            faults += self.backend.wait_for_faults(1.0)
        return {
            "process_said": done.stderr.strip().splitlines()[-1:],
            "faults": [
                {
                    **msgspec.to_builtins(fault),
                    "fatal": lookup_xid(fault.xid).is_fatal,
                    "words": lookup_xid(fault.xid).description,
                }
                for fault in faults
            ],
            "computation_after": msgspec.to_builtins(compute_in_process(self.gpu.uuid)),
        }

    def mig(self) -> Any:
        found = []
        for wanted in LAYOUTS:
            found.append(self._layout(wanted))
        found.append(self._in_use())
        begun = time.perf_counter()
        self._off()
        found.append({"off_s": round(time.perf_counter() - begun, 3), "after": self.gpu.mig_enabled})
        return found

    def _layout(self, wanted: dict[str, int]) -> Any:
        plan = plan_gpu(self.gpu, wanted, enabled=True)
        begun = time.perf_counter()
        try:
            apply_plans(self.backend, [plan])
        except DeviceError as error:
            return {
                "wanted": wanted,
                "steps": [describe_step(step) for step in plan.steps],
                "failed": str(error),
            }
        took = time.perf_counter() - begun
        gpu = self.gpu
        computed = [msgspec.to_builtins(compute_in_process(each.uuid)) for each in gpu.instances]
        labels = node_labels(self.backend.inventory(), PluginConfig(mig_strategy="mixed"))
        root = HostRoot()
        caps = [
            [
                root.capability_minor(gpu.minor, each.gpu_instance),
                root.capability_minor(gpu.minor, each.gpu_instance, each.compute_instance),
            ]
            for each in gpu.instances
        ]
        return {
            "wanted": wanted,
            "kept": plan.kept,
            "steps": [describe_step(step) for step in plan.steps],
            "refusal": plan.refusal,
            "apply_s": round(took, 3),
            "instances": msgspec.to_builtins(gpu.instances),
            "capabilities": caps,
            "computed": computed,
            "nvidia_smi": shell("nvidia-smi", "-L"),
            "labels": {name: value for name, value in labels.items() if "/mig" in name},
            "reading": dict(self.backend.reading(gpu.instances[0].uuid)) if gpu.instances else {},
            "gpu_reading": sorted(self.backend.reading(gpu.uuid)),
        }

    def _in_use(self) -> Any:
        """A layout that needs an instance on which something runs: refused by the plan, and by the driver."""
        gpu = self.gpu
        if not gpu.instances:
            return {"in_use": "no instances"}
        with Tenants([{"CUDA_VISIBLE_DEVICES": gpu.instances[0].uuid}]) as tenants:
            tenants.ready()
            users = self.backend.processes(gpu.uuid)
            planned = plan_gpu(gpu, SEVEN, enabled=True, in_use=frozenset([gpu.instances[0].uuid]))
            careless = plan_gpu(gpu, {"7g.141gb": 1}, enabled=True)
            try:
                apply_plans(self.backend, [careless])
                told = "not refused"
            except DeviceError as error:
                told = str(error)
            after = self.gpu
        return {
            "processes": msgspec.to_builtins(users),
            "plan": planned.refusal or [describe_step(step) for step in planned.steps],
            "driver": told,
            "same_layout_after": [(each.profile, each.start) for each in after.instances]
            == [(each.profile, each.start) for each in gpu.instances],
        }

    def sharing(self) -> Any:
        """Latency and throughput of every kind of work, alone and with neighbours, under each way of sharing."""
        found: dict[str, Any] = {}
        uuid = self.gpu.uuid
        plain = {"CUDA_VISIBLE_DEVICES": uuid}
        found["alone"] = self._alone(plain)
        for count in (2, 4, 7):
            found[f"time-slicing-{count}"] = self._kinds([plain] * count)
        for count, limited in ((2, True), (4, True), (7, True), (7, False)):
            try:
                found[f"mps-{count}" + ("" if limited else "-unlimited")] = self._mps(count, limited)
            except DeviceError as error:
                found[f"mps-{count}"] = {"failed": str(error)}
        for name, layout in (
            ("mig-7", SEVEN),
            ("mig-2", {"3g.71gb": 2}),
            ("mig-4", {"1g.35gb": 4}),
        ):
            try:
                apply_plans(self.backend, [plan_gpu(self.gpu, layout, enabled=True)])
                found[name] = self._kinds([{"CUDA_VISIBLE_DEVICES": each.uuid} for each in self.gpu.instances])
            except DeviceError as error:
                found[name] = {"failed": str(error)}
        self._off()
        return found

    def _alone(self, environment: dict[str, str]) -> Any:
        """Also what the counters say of each kind, which is what a prediction can start from."""
        found: dict[str, Any] = {}
        with Tenants([environment]) as tenants:
            found["ready"] = tenants.ready()
            for kind in KINDS:
                self.backend.reading(self.gpu.uuid)
                worker = in_background(tenants, kind.name, max(1.0, self.seconds))
                time.sleep(0.5)
                self.backend.reading(self.gpu.uuid)
                time.sleep(0.45)
                reading = self.backend.reading(self.gpu.uuid)
                answer = worker()
                busy = {name: round(reading[name], 4) for name in sorted(reading) if "_PROF_" in name}
                found[kind.name] = {"answers": answer, "counters": busy}
        return found

    def _kinds(self, environments: list[dict[str, str]]) -> Any:
        found: dict[str, Any] = {}
        with Tenants(environments) as tenants:
            ready = tenants.ready()
            found["ready"] = [each.get("ready") or each.get("error") for each in ready]
            if any("error" in each for each in ready):
                return found
            for kind in KINDS:
                found[kind.name] = {"answers": tenants.run(kind.name, self.seconds)}
        return found

    def _mps(self, count: int, with_limits: bool) -> Any:
        with tempfile.TemporaryDirectory(prefix="mps") as folder:
            daemon = MpsDaemon(self.backend, Path(folder), "nvidia.com/gpu", [self.gpu], count)
            try:
                daemon.start(with_limits=with_limits)
                environment = {"CUDA_VISIBLE_DEVICES": self.gpu.uuid, **daemon.environment()}
                found = self._kinds([environment] * count)
                found["alive"] = daemon.is_alive()
                found["threads"] = daemon.send_command("get_default_active_thread_percentage")
                found["limit"] = daemon.send_command("get_default_device_pinned_mem_limit 0")
                if with_limits:
                    found["over_the_limit"] = self._over(environment, count)
                return found
            finally:
                daemon.stop()

    def _over(self, environment: dict[str, str], count: int) -> Any:
        """A client may take its share of memory and no more."""
        share = self.gpu.memory_mib // count
        with Tenants([environment]) as tenants:
            tenants.ready()
            return {
                "half_the_share": tenants.ask({"allocate": (share // 2) << 20}),
                "above_the_share": tenants.ask({"allocate": (share + 4096) << 20}),
            }

    def time_slices(self) -> Any:
        said = {}
        for interval in ("short", "medium", "long", "default"):
            try:
                self.backend.set_time_slice(self.gpu.uuid, interval)
                said[interval] = shell("nvidia-smi", "compute-policy", "-l")[-200:]
            except DeviceError as error:
                said[interval] = f"refused: {error}"
        return said

    def _off(self) -> None:
        apply_plans(self.backend, [plan_gpu(self.gpu, {}, enabled=False)])

    def restore(self) -> Any:
        """The GPU as it was found."""
        problems = []
        for tidy in (
            lambda: self._off() if self.gpu.mig_enabled else None,
            lambda: self.backend.set_exclusive(self.gpu.uuid, False),
            lambda: self.backend.set_time_slice(self.gpu.uuid, "default"),
        ):
            try:
                tidy()
            except Exception as error:
                problems.append(str(error))
        if self.gpu.mig_enabled:
            problems += [shell("nvidia-smi", "mig", "-dci"), shell("nvidia-smi", "mig", "-dgi")]
            problems.append(shell("nvidia-smi", "-mig", "0"))
        return {
            "mig": self.gpu.mig_enabled,
            "processes": msgspec.to_builtins(self.backend.processes(self.gpu.uuid)),
            "nvidia_smi": smi(),
            "problems": problems,
        }


SECTIONS = (
    "machine",
    "discovery",
    "labels",
    "exporter",
    "validator",
    "xids",
    "mig",
    "time_slices",
    "sharing",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--seconds", type=float, default=0.6, help="of each measurement")
    arguments = parser.parse_args()
    recorder = Recorder(arguments.seconds)
    try:
        for name in arguments.only.split(","):
            recorder.section(name, getattr(recorder, name))
            (arguments.out / "record.json").write_text(json.dumps(recorder.record, indent=1, default=str))
    finally:
        recorder.section("restore", recorder.restore)
        (arguments.out / "record.json").write_text(json.dumps(recorder.record, indent=1, default=str))
        recorder.backend.close()
    failed = [name for name, each in recorder.record.items() if "failed" in (each["found"] or {})]
    print(f"\nsections that failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
