"""A container that computes on a real GPU with our CDI spec, and MIG instances against nvidia-smi: run as root.

Where there are gcc, runc and pip, once, from the repository root (fills `.device/`, which git ignores; about 15 MB):

    python tools/gpu/container.py --prepare

On the machine with the GPU (the repository with `.device/` in it), as root, from the repository root:

    PYTHONPATH=.device/python PYTHONUNBUFFERED=1 python3 tools/gpu/container.py --out "${OUT:-.}"

`--only spec,container` runs some sections. Each prints PASS or FAIL, what it found goes to `container.json`, and
the exit code is 1 if any failed. At the end MIG is off, the compute mode is the default, and no MPS daemon is left.

| section | shows |
| --- | --- |
| probe | what the machine has: runc, ldconfig, shell, container tools, the driver's folder |
| spec | our CDI spec of the driver: libraries, links, device nodes, hooks |
| cdi | our CDI spec beside nvidia-ctk's, for three layouts of the driver |
| container | a container root without a driver: fails without the spec, computes with it, as root and as a user |
| mig | multiprocessors of every profile: our back end, `nvidia-smi mig -cgi` and `-cci`, a container in the instance |
| mps | the control daemon outlives its agent, is adopted, keeps its clients, and leaves the default compute mode |
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DEVICE = ROOT / ".device"
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
PYTHON_VERSION = "3.12"
"""Of the machine with the GPU; `--python-version` says otherwise."""
SECTIONS = ("probe", "spec", "cdi", "container", "mig", "mps")
CTK = "github.com/NVIDIA/nvidia-container-toolkit/cmd/nvidia-ctk@v1.20.1"
"""NVIDIA's own generator of CDI specs, to compare with."""


def prepare(python_version: str) -> int:
    """Collects what the machine with the GPU may lack: runc, the C library, the program, Python packages."""
    from tools.gpu.oci_bundle import LIBRARIES, LIBRARY_FOLDER, LOADER

    DEVICE.mkdir(exist_ok=True)
    runc = shutil.which("runc") or "/usr/sbin/runc"
    shutil.copy(runc, DEVICE / "runc")
    for path in (LOADER, *(f"{LIBRARY_FOLDER}/{name}" for name in LIBRARIES)):
        target = DEVICE / "libraries" / path[1:]
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for library in Path(LIBRARY_FOLDER).glob("libseccomp.so.2"):
        (DEVICE / "runc-libraries").mkdir(exist_ok=True)
        shutil.copy(library, DEVICE / "runc-libraries")
    source = Path(__file__).with_name("vector_add.c")
    subprocess.run(["gcc", "-O1", "-o", str(DEVICE / "vector-add"), str(source), "-ldl"], check=True)
    _build_ctk(DEVICE / "nvidia-ctk")
    packages = [*("--target", str(DEVICE / "python"), "--python-version", python_version, "--only-binary=:all:")]
    packages += ["--upgrade", "--quiet", "msgspec", "nvidia-ml-py", "typing-extensions"]
    subprocess.run([sys.executable, "-m", "pip", "install", *packages], check=True)
    size = sum(file.stat().st_size for file in DEVICE.rglob("*") if file.is_file())
    print(f"{DEVICE}: {size >> 20} MiB")
    return 0


def _build_ctk(target: Path) -> None:
    """From its Go module; NVML is loaded when it runs."""
    with tempfile.TemporaryDirectory() as folder:
        for command in (["mod", "init", "ctk"], ["get", CTK], ["build", "-o", str(target), CTK.partition("@")[0]]):
            subprocess.run(["nice", "go", *command], cwd=folder, check=True, capture_output=True)


class Failed(Exception):
    """What a section wanted to see was not so."""


def require(condition: object, message: str) -> None:
    if not condition:
        raise Failed(message)


class Recorder:
    def __init__(self, folder: Path) -> None:
        from windlass.node.backend.nvml import NvmlBackend
        from windlass.node.host_root import HostRoot

        self.folder, self.root = folder, HostRoot()
        self.backend = NvmlBackend(self.root)
        self.record: dict[str, Any] = {}
        self.failed: list[str] = []
        self._containers = 0

    @property
    def uuid(self) -> str:
        return self.backend.inventory().gpus[0].uuid

    def section(self, name: str, run: Callable[[], Any]) -> None:
        begun = time.monotonic()
        try:
            found, outcome = run(), "PASS"
        except Exception as error:
            if not isinstance(error, Failed):
                traceback.print_exc(limit=6, file=sys.stdout)
            found, outcome = f"{type(error).__name__}: {error}", "FAIL"
            self.failed.append(name)
        self.record[name] = {"outcome": outcome, "took_s": round(time.monotonic() - begun, 2), "found": found}
        print(f"{outcome} {name} {json.dumps(found, default=str)[:4000]}", flush=True)

    def probe(self) -> Any:
        """What there is; fails only without something to run containers with."""
        programs = (
            "runc",
            "containerd",
            "kubelet",
            "nvidia-ctk",
            "nvidia-cdi-hook",
            "nvidia-smi",
            "ldconfig",
            "busybox",
        )
        found: dict[str, Any] = {
            name: shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") for name in programs
        }
        found |= {
            path: Path(path).exists() for path in ("/bin/sh", "/sbin/ldconfig", "/sys/fs/cgroup/cgroup.controllers")
        }
        found["root"] = os.geteuid() == 0
        found["kernel"] = os.uname().release
        found["driver"] = self.root.read("/proc/driver/nvidia/version").splitlines()[:1]
        found["device nodes"] = sorted(str(path) for path in Path("/dev").glob("nvidia*"))
        found["runc version"] = self._run(self.runc(), "--version").splitlines()[:1]
        require(found["root"], f"not root: {found}")
        return found

    def spec(self) -> Any:
        """Our spec of this driver, written and checked."""
        from windlass.node.cdi import write_spec

        spec, driver = self._make_spec()
        file = write_spec(spec, self.folder / "cdi")
        shutil.copy(file, self.folder / "spec.json")
        names = [Path(library.inside).name for library in driver.libraries]
        edits = spec.container_edits
        found = {
            "driver root": driver.root,
            "library folders": driver.library_folders,
            "libraries": len(driver.libraries),
            "links": len(driver.links),
            "mounts": len(edits.mounts),
            "devices": [device.name for device in spec.devices],
            "device nodes": [f"{n.path} {n.major}:{n.minor} {n.file_mode:o}" for n in edits.device_nodes],
            "hooks": [" ".join(hook.args[:3]) for hook in edits.hooks],
            "names": names,
        }
        for library in ("libcuda.so.", "libnvidia-ml.so.", "libnvidia-ptxjitcompiler.so."):
            require(any(name.startswith(library) for name in names), f"no {library}: {found}")
        require(len(edits.hooks) >= 2, f"hooks are missing: {found}")
        return found

    def cdi(self) -> Any:
        from tools.gpu.cdi_compare import compare_layouts

        (DEVICE / "nvidia-ctk").chmod(0o755)
        found = compare_layouts(self.backend, self.folder, DEVICE / "nvidia-ctk")
        (self.folder / "cdi-compared.json").write_text(json.dumps(found, indent=1))
        return found

    def container(self) -> Any:
        """The program in a container root that has no driver: without the spec, with it, and as another user."""
        spec, _ = self._make_spec()
        bare = self._run_container([], uid=0)
        require("libcuda.so.1" in bare and "right" not in bare, f"there is a driver without the spec: {bare}")
        found = {"without the spec": bare}
        for who, uid in (("root", 0), ("user 65534", 65534)):
            found[who] = self._run_container(self._edits(spec, "0"), uid=uid)
            require(found[who].startswith("right"), f"{who}: {found[who]}")
        found["by UUID"] = self._run_container(self._edits(spec, self.uuid), uid=0)
        require(found["by UUID"].startswith("right"), found["by UUID"])
        return found

    def mig(self) -> Any:
        """The multiprocessors of every profile: our back end, nvidia-smi, and what a container sees."""
        gpu = self.backend.inventory().gpus[0]
        geometry = gpu.geometry
        require(geometry is not None, f"{gpu.name} has no MIG geometry")
        assert geometry is not None
        self.backend.set_mig_mode(gpu.uuid, True)
        found: dict[str, Any] = {}
        try:
            for profile in geometry.profiles:
                ours, inside = self._ours(profile.name, profile.starts[0])
                theirs = self._theirs(profile.name)
                found[profile.name] = {"ours": ours, "nvidia-smi": theirs, "container": inside}
        finally:
            self._clear_mig()
        wrong = [
            name
            for name, row in found.items()
            if row["ours"] != row["nvidia-smi"] or f"with {row['ours']} multiprocessors" not in row["container"]
        ]
        require(not wrong, f"{', '.join(wrong)} differ: {found}")
        return found

    def _ours(self, profile: str, start: int) -> tuple[int, str]:
        """Multiprocessors of an instance of ours, and a container's line from inside."""
        self.backend.create_instance(self.uuid, profile, start)
        (instance,) = self.backend.inventory().gpus[0].instances
        spec, _ = self._make_spec()
        line = self._run_container(self._edits(spec, instance.uuid), uid=0, visible=instance.uuid)
        self.backend.destroy_instance(self.uuid, instance.gpu_instance)
        return instance.multiprocessors, line

    def _theirs(self, profile: str) -> int:
        from windlass.node.backend import nvml_mig

        known = {each.name: each.id for each in nvml_mig.profiles_of(self.backend._handle(self.uuid))}
        self._run("nvidia-smi", "mig", "-i", "0", "-cgi", str(known[profile]))
        self._run("nvidia-smi", "mig", "-i", "0", "-cci")
        (instance,) = self.backend.inventory().gpus[0].instances
        self.backend.destroy_instance(self.uuid, instance.gpu_instance)
        return instance.multiprocessors

    def mps(self) -> Any:
        from tools.gpu.mps_life import mps_life

        return mps_life(self.backend, self.folder, require)

    def restore(self) -> Any:
        """MIG off, default compute mode, no MPS daemon."""
        self._clear_mig()
        self.backend.set_exclusive(self.uuid, False)
        mode = self._run("nvidia-smi", "--query-gpu=mig.mode.current,compute_mode", "--format=csv,noheader").strip()
        found = subprocess.run(["pgrep", "-fa", "nvidia-cuda-mps"], capture_output=True, text=True, check=False).stdout
        left = [line for line in found.splitlines() if "<defunct>" not in line]  # ended, and nobody has asked
        require("Default" in mode and "Enabled" not in mode, f"not restored: {mode}")
        require(not left, f"MPS is left: {left}")
        return mode

    def _clear_mig(self) -> None:
        for instance in self.backend.inventory().gpus[0].instances:
            self.backend.destroy_instance(self.uuid, instance.gpu_instance)
        if self.backend.inventory().gpus[0].mig_enabled:
            self.backend.set_mig_mode(self.uuid, False)

    def _make_spec(self) -> Any:
        from windlass.node.cdi import check_spec, make_spec
        from windlass.node.cdi_hooks import find_hook_program
        from windlass.node.driver_files import find_driver

        inventory = self.backend.inventory()
        driver = find_driver(self.root, inventory.driver.version)
        hook = find_hook_program(self.root, "/usr/bin/nvidia-ctk", self.folder / "state")
        spec = make_spec(inventory, self.root, "k8s.device-plugin.nvidia.com/gpu", driver, hook=hook)
        check_spec(spec, self.root, driver)
        return spec, driver

    @staticmethod
    def _edits(spec: Any, name: str) -> Any:
        from tools.gpu.oci_bundle import edits_of

        return edits_of(spec, [name])

    def _run_container(self, edits: Any, *, uid: int, visible: str = "") -> str:
        """A fresh root each time, since hooks write into it; the line that the program printed, or the error."""
        from tools.gpu.oci_bundle import make_root, oci_config, run_container

        self._containers += 1
        bundle = self.folder / f"bundle-{self._containers}"
        make_root(bundle / "rootfs", DEVICE / "vector-add", DEVICE / "libraries")
        require(not list((bundle / "rootfs").rglob("libcuda*")), "the root has a driver inside")
        config = oci_config(edits, uid=uid, cgroup=f"/windlass-container-{self._containers}")
        if visible:
            config["process"]["env"].append(f"CUDA_VISIBLE_DEVICES={visible}")
        done = run_container(self.runc(), bundle, f"windlass-{os.getpid()}-{self._containers}", config)
        shutil.rmtree(bundle, ignore_errors=True)
        return (done.stdout or done.stderr).strip()

    def runc(self) -> str:
        """The machine's own, or the carried one with its library."""
        installed = shutil.which("runc", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
        if installed:
            return installed
        wrapper = self.folder / "runc"
        if not wrapper.exists():
            libraries = DEVICE / "runc-libraries"
            wrapper.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {DEVICE}/runc "$@"\n')
            wrapper.chmod(0o755)
            (DEVICE / "runc").chmod(0o755)
        return str(wrapper)

    @staticmethod
    def _run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        require(done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="collect what the other machine needs, into .device/")
    parser.add_argument("--python-version", default=PYTHON_VERSION, help="of the machine with the GPU")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    arguments = parser.parse_args()
    if arguments.prepare:
        return prepare(arguments.python_version)
    with tempfile.TemporaryDirectory(prefix="container") as folder:
        recorder = Recorder(Path(folder))
        try:
            for name in arguments.only.split(","):
                recorder.section(name, getattr(recorder, name))
        finally:
            recorder.section("restore", recorder.restore)
            (arguments.out / "container.json").write_text(json.dumps(recorder.record, indent=1, default=str))
            for made in sorted((*Path(folder).glob("*spec.json"), *Path(folder).glob("*s-*.json"))):
                shutil.copy(made, arguments.out / made.name)
    print(f"{len(recorder.record) - len(recorder.failed)} of {len(recorder.record)} sections passed", flush=True)
    return 1 if recorder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
