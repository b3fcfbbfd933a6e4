"""The agent as users install it, on a real GPU: real kubelet, containerd and API server; pods compute. Run as root.

Where the tests' Kubernetes is built (Debian, root), once, from the repository root (fills `.device/`, which git
ignores: four archives of up to 45 MB, since the machine with the GPU may take only so much at a time):

    python tools/gpu/kubelet.py --prepare

On the machine with the GPU, as root, with the archives unpacked into one folder:

    for part in .device/*.tar.xz; do tar -C "$LAB" -xJf $part; done; tar -C "$LAB" -xf "$LAB/tree.tar"
    cd "$LAB" && PYTHONPATH=python python3 tools/gpu/kubelet.py --lab "$LAB" --out "${OUT:-.}"

`--only agent,compute` runs some sections (`agent` always); `--keep-settings`, for a GPU that is lent, leaves out those
that change its MIG mode or compute mode. Each prints PASS or FAIL, what it found goes to `kubelet.json`, the agent's
log beside it, and the exit code is 1 if any failed. At the end MIG and compute mode are as they were, and nothing is
left. `--simulated` plays it with simulated GPUs, where pods can't compute.

| section | shows |
| --- | --- |
| agent | the shipped image in the printed DaemonSet becomes ready, advertises the GPU, labels the node; its memory |
| compute | pods with `nvidia.com/gpu: 1` compute by CDI, as root and as a user; one without finds no driver |
| envvar | a strategy that nothing on the node carries out is refused with the reason |
| slicing | three pods on one time-sliced GPU |
| mps | two pods with memory limits; the agent is killed and upgraded underneath |
| xid | a pod's stray write is an Event and a metric, and the GPU goes on |
| mig | a change waits for a pod; seven pods in 7 × 1g, two in 3g and 4g; the exporter names them |
| profiles | multiprocessors in a pod of every profile against `nvidia-smi mig -cgi -C` |
| clean | nothing is left of it |
"""

from __future__ import annotations

import argparse
import json
import os
import re
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
sys.path[:0] = [str(ROOT), str(ROOT / "src")]
sys.dont_write_bytecode = True

from tools.gpu.lab_layouts import PROFILES, lab_layouts, layout_name  # noqa: E402
from tools.gpu.node_lab import Failed, NodeLab, node_lab, read_objects, require, running_programs, smi, wait_until  # noqa: E402  # noqa: E402

GPU = "nvidia.com/gpu"
CONFIG_LABEL = "device-plugin.config"
SECTIONS = ("agent", "compute", "envvar", "slicing", "mps", "xid", "mig", "profiles")
NOT_SIMULATED = ("envvar", "mps", "xid", "profiles")
CHANGES_SETTINGS = ("mps", "mig", "profiles")
IMAGE = "docker.io/library/windlass-node"
MIG_FILE = Path("/run/windlass/lab/mig.yaml")
SETTINGS = ("--query-gpu=mig.mode.current,compute_mode", "--format=csv,noheader")


class Recorder:
    def __init__(self, lab: NodeLab, files: Path, *, simulated: bool, keep_settings: bool) -> None:
        self.lab, self.files, self.simulated, self.keep_settings = lab, files, simulated, keep_settings
        self.record: dict[str, Any] = {}
        self.failed: list[str] = []
        self._settings = "simulated" if simulated else smi(*SETTINGS)

    def sections(self, named: list[str]) -> list[str]:
        """What of the named sections can be run here."""
        left_out = {*(NOT_SIMULATED if self.simulated else ()), *(CHANGES_SETTINGS if self.keep_settings else ())}
        return [name for name in dict.fromkeys(["agent", *named]) if name not in left_out]

    def section(self, name: str, run: Callable[[], Any]) -> None:
        begun = time.monotonic()
        try:
            found, outcome = run(), "PASS"
        except Exception as error:
            if not isinstance(error, Failed):
                traceback.print_exc(limit=6, file=sys.stdout)
            found, outcome = f"{type(error).__name__}: {error}", "FAIL"
            self.failed.append(name)
            if name != "agent":
                self._recover()
        self.record[name] = {"outcome": outcome, "took_s": round(time.monotonic() - begun, 2), "found": found}
        print(f"{outcome} {name} {json.dumps(found, default=str)[:3500]}", flush=True)

    # ---- sections

    def agent(self) -> Any:
        begun = time.monotonic()
        MIG_FILE.parent.mkdir(parents=True, exist_ok=True)
        MIG_FILE.write_text(lab_layouts())
        (MIG_FILE.parent / "fleet.yaml").write_text((self.files / "fleet.yaml").read_text())
        self.lab.label("gpu.present", "true")
        self.lab.apply(read_objects(self.files / ("simulated.yaml" if self.simulated else "node.yaml")))
        self.lab.wait_allocatable(GPU, 1, 60)
        advertised = round(time.monotonic() - begun, 2)
        wait_until(lambda: self.lab.labels().get("nvidia.com/gpu.product"), 60, "labels", self.lab.agent_state)
        pod = self.lab.agent()
        wait_until(
            lambda: self.lab.agent()["status"]["containerStatuses"][0]["ready"], 30, "ready", self.lab.agent_state
        )
        (status,) = pod["status"]["containerStatuses"]
        require(status["restartCount"] == 0, f"it has ended before: {self.lab.agent_state()}")
        way = [line for line in self.lab.agent_log().splitlines() if "devices come" in line or "wrote" in line]
        require(self.simulated or "by CDI" in str(way), f"not by CDI: {self.lab.agent_log()}")
        labels = {name: value for name, value in self.lab.labels().items() if name.startswith(GPU)}
        return {"advertised_s": advertised, "labels": labels, "way": way, "memory_mib": self.lab.agent_memory()}

    def compute(self) -> Any:
        self.lab.run("no-gpu", gpus=0)
        found: dict[str, Any] = {"without a GPU": self.lab.ends("no-gpu")[1]}
        require("libcuda.so.1" in found["without a GPU"], f"{found}")
        for name, user in (("as-root", 0), ("as-user", 65534)):
            self.lab.run(name, user=user)
            found[name] = self._right(*self.lab.ends(name))
        self.lab.run("named", "seconds", "15")
        self.lab.speaks("named")
        found["metrics"] = self._named_in_metrics(["named"])
        if not self.simulated:
            found["nvidia-smi"] = smi("--query-gpu=memory.used", "--format=csv,noheader")
        found["named"] = self._right(*self.lab.ends("named"))
        return found

    def envvar(self) -> Any:
        self.lab.label(CONFIG_LABEL, "envvar")
        self.lab.wait_allocatable(GPU, 0)
        said = [line for line in self.lab.agent_log().splitlines() if "nothing carries out" in line]
        require(said, f"no reason: {self.lab.agent_log()[-2000:]}")
        self._default_config()
        return said[-1]

    def slicing(self) -> Any:
        shared = f"{GPU}.shared"
        self.lab.label(CONFIG_LABEL, "shared")
        self.lab.wait_allocatable(shared, 4)
        names = [f"share-{number}" for number in range(3)]
        for name in names:
            self.lab.run(name, "seconds", "12", resource=shared)
        for name in names:
            self.lab.speaks(name)
        found: dict[str, Any] = {"metrics": self._named_in_metrics(names)}
        if not self.simulated:
            found["nvidia-smi"] = smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader")
        found |= {name: self._right(*self.lab.ends(name)) for name in names}
        self._default_config()
        return found

    def mps(self) -> Any:
        self.lab.label(CONFIG_LABEL, "mps")
        self.lab.wait_allocatable(GPU, 2)
        found: dict[str, Any] = {"compute mode": smi("--query-gpu=compute_mode", "--format=csv,noheader")}
        wanted = {"too-much": ("100000", "refused"), "enough": ("60000", "granted")}
        for name, (size, _) in wanted.items():
            self.lab.run(name, "allocate", size)
        for name, (_, answer) in wanted.items():
            found[name] = self._right(*self.lab.ends(name))
            require(answer in found[name], f"{name}: {found[name]}")
        names = ("client-a", "client-b")
        for name in names:
            self.lab.run(name, "seconds", "60")
        for name in names:
            self.lab.speaks(name)
        found["killed"] = self._kill_plugin()
        found["upgraded"] = self._upgrade()
        self.lab.wait_allocatable(GPU, 2)
        require([self.lab.phase(name) for name in names] == ["Running", "Running"], "a client has ended")
        found |= {name: self._right(*self.lab.ends(name, 120)) for name in names}
        self._default_config()
        found["afterwards"] = smi("--query-gpu=compute_mode", "--format=csv,noheader")
        require(found["afterwards"] == "Default", f"{found}")
        return found

    def xid(self) -> Any:
        self.lab.run("stray", "stray")
        phase, output = self.lab.ends("stray")
        require(phase == "Failed", f"{phase}: {output}")
        event = wait_until(
            lambda: [line for line in self.lab.events() if "Xid 31" in line], 30, "an Event", self.lab.agent_state
        )
        xid = re.compile(r"^DCGM_FI_DEV_XID_ERRORS\{.*\} 31$", re.MULTILINE)
        wait_until(lambda: xid.search(self.lab.metrics()), 30, "the metric", self.lab.agent_state)
        self.lab.run("after-stray")
        after = self._right(*self.lab.ends("after-stray"))
        require(self.lab.allocatable(GPU) == 1, "the GPU was taken away")
        return {"pod": output, "event": event[-1], "after": after}

    def mig(self) -> Any:
        self.lab.run("holder", "seconds", "20")
        self.lab.speaks("holder")
        self._ask_for_layout("seven")
        if not self.simulated:  # where the holder could not compute, it has ended
            self._mig_state("failed")
        found: dict[str, Any] = {"waits": self.lab.annotations().get("windlass.dev/mig-config-reason")}
        require(self.simulated or "default/holder" in str(found["waits"]), f"{found}")
        found["holder"] = self._right(*self.lab.ends("holder"))
        found["done"] = self._mig_state("success")
        found["seven"] = self._instances([("1g.18gb", 7)])
        self._mig_layout("two")
        found["two"] = self._instances([("3g.71gb", 1), ("4g.71gb", 1)])
        self._mig_off()
        return found

    def profiles(self) -> Any:
        found = {}
        for profile in PROFILES:
            self._mig_layout(layout_name(profile))
            resource = f"nvidia.com/mig-{profile.replace('+', '.')}"
            self.lab.wait_allocatable(resource, 1)
            name = f"in-{profile.replace('.', '-').replace('+', '-')}"
            self.lab.run(name, resource=resource)
            found[profile] = {"pod": self._multiprocessors(self._right(*self.lab.ends(name)))}
            print(f"  {profile}: {found[profile]}", flush=True)
        self._mig_layout("none")
        for profile in PROFILES:
            smi("mig", "-cgi", profile, "-C", attempts=20)
            found[profile]["nvidia-smi"] = self._multiprocessors(self._on_host())
            smi("mig", "-dci", attempts=20)
            smi("mig", "-dgi", attempts=20)
        self._mig_off()
        wrong = [profile for profile, row in found.items() if row["pod"] != row["nvidia-smi"]]
        require(not wrong, f"{', '.join(wrong)} differ: {found}")
        return found

    def clean(self) -> Any:
        """Off with everything: pods, MIG, the agent; then what nvidia-smi and the kernel say."""
        self._recover()
        if "agent" not in self.failed:
            self._mig_off()
            self.record["memory at the end"] = {"found": self.lab.agent_memory()}
        if self.lab.agent():
            self.lab.api.delete("/apis/apps/v1/namespaces/windlass-node/daemonsets/windlass-node")
            wait_until(lambda: not self.lab.agent(), 60, "the agent is gone")
        shutil.rmtree(MIG_FILE.parent, ignore_errors=True)
        if self.simulated:
            return "simulated"
        mode = smi(*SETTINGS)
        found = {"MIG and compute mode": mode, "MPS": running_programs("nvidia-cuda-mps")}
        require(mode == self._settings and not found["MPS"], f"{found}, before: {self._settings}")
        return found

    # ---- steps

    def _right(self, phase: str, output: str) -> str:
        require(self.simulated or (phase == "Succeeded" and "right" in output), f"{phase}: {output}")
        return output

    def _multiprocessors(self, output: str) -> int:
        found = re.search(r"with (\d+) multiprocessors", output)
        require(found, f"no number of multiprocessors: {output}")
        assert found is not None
        return int(found[1])

    def _on_host(self) -> str:
        """The program on the host, in the one MIG device there is."""
        found = re.search(r"MIG-[0-9a-f-]+", smi("-L"))
        require(found, "no MIG device")
        assert found is not None
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": found[0], "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
        command = [str(self.files / "vector-add")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout

    def _named_in_metrics(self, pods: list[str]) -> list[str]:
        """One line of the exporter for each pod, with memory in use: the kubelet lists a pod before it runs, so that a
        page may name it that was made before it had any."""

        def lines() -> list[str]:
            text = self.lab.metrics().splitlines()
            used = [line for line in text if line.startswith("DCGM_FI_DEV_FB_USED{")]
            named = [line for pod in pods for line in used if f'pod="{pod}"' in line]
            return named if self.simulated else [line for line in named if not line.endswith(" 0")]

        def told() -> str:
            processes = "" if self.simulated else smi("--query-compute-apps=pid,used_memory", "--format=csv")
            return f"{[line for line in self.lab.metrics().splitlines() if 'FB_USED' in line]} {processes}"

        wait_until(lambda: len(lines()) >= len(pods), 30, f"the exporter names {pods} with their memory", told)
        return lines()

    def _default_config(self) -> None:
        self.lab.label(CONFIG_LABEL, None)
        self.lab.wait_allocatable(GPU, 1)

    def _kill_plugin(self) -> str:
        (pid,) = self.lab.agent_processes("plugin")
        os.kill(pid, 9)
        wait_until(lambda: self.lab.agent_processes("plugin") not in ([], [pid]), 30, "a new plugin process")
        wait_until(lambda: "adopted" in self.lab.agent_log(), 30, "it adopts the daemon", self.lab.agent_state)
        return next(line for line in self.lab.agent_log().splitlines() if "adopted" in line)

    def _upgrade(self) -> str:
        """Another image, by a rollout."""
        before = self.lab.agent()["metadata"]["name"]
        images = [name for name in self.lab.node.ctr("images", "list", "--quiet").split() if name.startswith(IMAGE)]
        self.lab.node.ctr("images", "tag", images[0], f"{IMAGE}:next")
        containers = [{"name": "agent", "image": f"{IMAGE}:next"}]
        path = "/apis/apps/v1/namespaces/windlass-node/daemonsets/windlass-node"
        self.lab.api.patch(path, {"spec": {"template": {"spec": {"containers": containers}}}}, "strategic")

        def is_new() -> bool:
            agent = self.lab.agent()
            return agent != {} and agent["metadata"]["name"] != before and "adopted" in self.lab.agent_log()

        wait_until(is_new, 60, "a new agent adopts the daemon", self.lab.agent_state)
        return next(line for line in self.lab.agent_log().splitlines() if "adopted" in line)

    def _instances(self, wanted: list[tuple[str, int]]) -> dict[str, Any]:
        """A pod in every instance, all at once."""
        names = []
        for profile, count in wanted:
            resource = f"nvidia.com/mig-{profile}"
            self.lab.wait_allocatable(resource, count)
            for number in range(count):
                names.append(f"mig-{profile.replace('.', '-')}-{number}")
                self.lab.run(names[-1], "seconds", "15", resource=resource)
        for name in names:
            self.lab.speaks(name)
        lines = self._named_in_metrics(names) if not self.simulated else []
        found = {name: self._right(*self.lab.ends(name)) for name in names}
        return {"metrics": lines[:2], "pods": found}

    def _ask_for_layout(self, name: str) -> None:
        """Takes the state of the one before away, too."""
        labels = {"nvidia.com/mig.config": name, "nvidia.com/mig.config.state": None}
        self.lab.api.patch(f"/api/v1/nodes/{self.lab.node.name}", {"metadata": {"labels": labels}})

    def _mig_layout(self, name: str) -> None:
        self._ask_for_layout(name)
        self._mig_state("success")

    def _mig_state(self, state: str) -> str:
        """Waits until the agent says so; its reason."""

        def reached() -> bool:
            return self.lab.labels().get("nvidia.com/mig.config.state") == state

        def told() -> str:
            return f"{self.lab.labels()} {self.lab.annotations()} {self.lab.agent_state()}"

        wait_until(reached, 60, f"MIG state {state}", told)
        return str(self.lab.annotations().get("windlass.dev/mig-config-reason"))

    def _mig_off(self) -> None:
        if not self.keep_settings:
            self.lab.label("mig.config", "all-disabled")
        self.lab.wait_allocatable(GPU, 1)

    def _recover(self) -> None:
        """To where every section begins, as far as that goes."""
        try:
            self.lab.delete_all()
            self.lab.label(CONFIG_LABEL, None)
            if not self.keep_settings:
                self.lab.label("mig.config", "all-disabled")
            if "agent" not in self.failed:
                self.lab.wait_allocatable(GPU, 1, 30)
        except Exception as error:
            print(f"not recovered: {error}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--prepare", action="store_true", help="pack what the other machine needs, into .device/")
    parser.add_argument(
        "--lab", type=Path, help="where the archives were unpacked; default: this machine's own programs"
    )
    parser.add_argument("--simulated", action="store_true", help="simulated GPUs")
    parser.add_argument("--keep-settings", action="store_true", help="leave MIG and compute mode of the GPU alone")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    given = parser.parse_args()
    if given.prepare or given.lab is None:
        from tools.gpu.node_lab_parts import prepare

        given.lab = prepare(ROOT / ".device", pack=given.prepare)
        if given.prepare:
            return 0
    files, programs = given.lab.resolve() / "files", given.lab.resolve() / "bin"
    with tempfile.TemporaryDirectory(prefix="kubelet") as folder:
        images = [files / "node-image.tar", files / "vector-add-image.tar"]
        with node_lab(Path(folder), programs, images) as lab:
            recorder = Recorder(lab, files, simulated=given.simulated, keep_settings=given.keep_settings)
            try:
                for name in recorder.sections(given.only.split(",")):
                    if "agent" not in recorder.failed:
                        recorder.section(name, getattr(recorder, name))
            finally:
                (given.out / "agent.log").write_text(lab.agent_log())
                recorder.section("clean", recorder.clean)
                (given.out / "kubelet.json").write_text(json.dumps(recorder.record, indent=1, default=str))
    ran = [name for name, row in recorder.record.items() if "outcome" in row]
    print(f"ran: {', '.join(ran)}; failed: {', '.join(recorder.failed) or 'none'}", flush=True)
    return 1 if recorder.failed else 0


if __name__ == "__main__":
    sys.exit(main())
