"""`windlass up --gpus real` on a machine with a GPU, recorded: the story of sharing, waiting, preempting and
resuming.

    python tools/gpu/up.py [--out FOLDER] [--mps]

Starts the cluster with each GPU shared by two pods, and plays: two training scripts share the GPU; a third waits and
is told why; a pod of higher priority takes the place of one, which saves its state on SIGTERM and resumes where it
was; a pod that reads where there is no memory makes the driver report an Xid, which must arrive as an Event on the node
and leave the GPU healthy. Work is PTX through the driver alone (`windlass.node.validator`). Writes `up.json` and
`up.md`; exit code 1 where something isn't as told.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windlass.model.unstructured import Unstructured

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tools.gpu.up_programs import STRAY, TRAINER  # noqa: E402  (found by the path above)

GPU = "nvidia.com/gpu"
PATIENCE = 180.0


class Api:
    def __init__(self, kubeconfig: Path) -> None:
        document = json.loads(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        self.server, self.token = cluster["server"], document["users"][0]["user"]["token"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self.tls = ssl.create_default_context(cadata=authority)

    def call(self, method: str, path: str, body: Unstructured | None = None) -> bytes:
        request = urllib.request.Request(
            self.server + path,
            method=method,
            data=json.dumps(body).encode() if body is not None else None,
            headers={"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, context=self.tls, timeout=60) as answer:
            return bytes(answer.read())

    def get(self, path: str) -> Unstructured:
        found: Unstructured = json.loads(self.call("GET", path))
        return found


class Story:
    def __init__(self, folder: Path, mps: bool) -> None:
        self.folder, self.mps = folder, mps
        self.record: Unstructured = {"mps": mps}
        self.failed: list[str] = []
        self.trainer = folder / "train.py"
        self.trainer.write_text(TRAINER)
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] | None = None
        self.api: Api | None = None

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
        kubeconfig = self.folder / "kubeconfig"
        command = [
            *(sys.executable, "-c", "from windlass.cli.main import main; main()", "up", "--gpus", "real"),
            *("--gpu-replicas", "2", "--no-page", "--port", "0", "--write-kubeconfig", str(kubeconfig)),
            *(["--mps"] if self.mps else []),
        ]
        paths = os.pathsep.join(filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        environment = {**os.environ, "PYTHONPATH": paths}
        begun = time.monotonic()
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.until(lambda: any(line.startswith("nodes") for line in self.lines))
        took = time.monotonic() - begun
        self.api = Api(kubeconfig)
        node = self.api.get("/api/v1/nodes")["items"][0]
        for name, value in (("low", 100), ("high", 1000)):
            body = {"metadata": {"name": name}, "value": value}
            self.api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        labels = {key: value for key, value in node["metadata"]["labels"].items() if "nvidia" in key}
        return {
            "address_s": round(took, 2),
            "lines": self.lines[:8],
            "node": node["metadata"]["name"],
            "allocatable": node["status"]["allocatable"],
            "labels": {key: labels[key] for key in sorted(labels) if "gpu." in key},
        }

    def share(self) -> Any:
        """Two pods on one GPU, at the same time."""
        for name in ("one", "two"):
            self.train(name, 1_000_000)
        begun = time.monotonic()
        for name in ("one", "two"):
            self.phase(name, "Running")
            self.logged(name, "step 20")
        took = time.monotonic() - begun
        devices = {name: self.match(name, r"visible (\S+)") for name in ("one", "two")}
        assert len(set(devices.values())) == 1, devices
        processes = self._compute_processes()
        return {"both_computing_s": round(took, 2), "devices": devices, "nvidia_smi_processes": processes}

    def wait(self) -> Any:
        """A third has no room, and is told so."""
        self.train("three", 100)
        self.until(lambda: self.condition("three"))
        told = self.condition("three")
        assert "Insufficient nvidia.com/gpu" in told or "GPU" in told, told
        assert self.pod("three")["status"]["phase"] == "Pending"
        return {"told": told}

    def preempt(self) -> Any:
        """A pod of higher priority: one of the two saves its state and goes."""
        api = self._api()
        api.call("DELETE", "/api/v1/namespaces/default/pods/three")
        before = {name: self.last_step(name) for name in ("one", "two")}
        begun = time.monotonic()
        self.train("urgent", 100, priority="high")
        self.phase("urgent", "Running", "Succeeded")
        took = time.monotonic() - begun
        left = [pod["metadata"]["name"] for pod in api.get("/api/v1/namespaces/default/pods")["items"]]
        gone = [name for name in ("one", "two") if name not in left]
        assert len(gone) == 1, left
        saved = json.loads((self.folder / f"{gone[0]}.state").read_text())
        assert saved[0] >= before[gone[0]], (saved, before)
        self.record["victim"] = gone[0]
        events = [
            f"{event['reason']}: {event['message'] if 'message' in event else event.get('note', '')}"
            for event in api.get("/api/v1/namespaces/default/events")["items"]
            if event["involvedObject"]["name"] in (gone[0], "urgent")
        ]
        return {
            "urgent_running_s": round(took, 2),
            "victim": gone[0],
            "saved_at_step": saved[0],
            "events": events[-12:],
        }

    def resume(self) -> Any:
        """The urgent one ends; the other comes back and goes on where it was."""
        self.phase("urgent", "Succeeded")
        name = self.record["victim"]
        saved = json.loads((self.folder / f"{name}.state").read_text())[0]
        self.train(name, saved + 100)
        self.phase(name, "Succeeded")
        log = self.log(name)
        assert f"resumed at step {saved}" in log, log[:400]
        assert "right" in log.splitlines()[-1], log[-400:]
        return {"resumed_at_step": saved, "last_line": log.splitlines()[-1]}

    def inside(self) -> Any:
        """What the running pod's own log and a limit on memory show."""
        running = "one" if self.record["victim"] == "two" else "two"
        exhausted = {
            "name": "main",
            "image": "none",
            "command": [sys.executable, "-c", "x = bytearray(1 << 31); print(len(x))"],
        }
        exhausted["resources"] = {"limits": {"memory": "256Mi"}}
        self.create("hungry", {"restartPolicy": "Never", "containers": [exhausted]})
        self.until(lambda: self.pod("hungry")["status"]["phase"] in ("Succeeded", "Failed"))
        state = self.pod("hungry")["status"]["containerStatuses"][0]["state"]["terminated"]
        self.create("imageless", {"restartPolicy": "Never", "containers": [{"name": "main", "image": "pytorch"}]})
        self.until(lambda: "message" in self._waiting("imageless"))
        return {
            "still_running": [running, self.last_step(running)],
            "memory_limit": state,
            "no_command": self._waiting("imageless"),
        }

    def watch(self) -> Any:
        """The driver's faults are watched: a pod's own mistake is told on the node, and nothing else happens."""
        assert any("are watched" in line for line in self.lines), self.lines
        stray = self.folder / "stray.py"
        stray.write_text(STRAY)
        begun = time.monotonic()
        self.compute("stray", [sys.executable, str(stray)])
        self.until(lambda: self.pod("stray")["status"]["phase"] in ("Succeeded", "Failed"))
        assert self.pod("stray")["status"]["phase"] == "Failed", self.log("stray")
        self.until(lambda: any(event.startswith("GPUXid: ") for event in self._node_events()))
        node = self._api().get("/api/v1/nodes")["items"][0]
        told = self._node_events()
        assert node["status"]["allocatable"][GPU] == node["status"]["capacity"][GPU], node["status"]
        return {
            "told_s": round(time.monotonic() - begun, 2),
            "node_events": told,
            "pod_log": self.log("stray")[-600:],
            "allocatable": node["status"]["allocatable"][GPU],
        }

    def _node_events(self) -> list[str]:
        events = self._api().get("/api/v1/namespaces/default/events")["items"]
        return [f"{each['reason']}: {each['message']}" for each in events if each["reason"].startswith("GPU")]

    def stop(self) -> Any:
        if self.process is None:
            return None
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(60)
        left = self._compute_processes()
        assert code == 0, code
        return {"exit_code": code, "gpu_processes_left": left}

    def train(self, name: str, steps: int, priority: str = "low") -> None:
        command = [sys.executable, str(self.trainer), str(self.folder / f"{name}.state"), str(steps)]
        self.compute(name, command, priority)

    def compute(self, name: str, command: list[str], priority: str = "low") -> None:
        paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
        box = {
            "name": "main",
            "image": "none",
            "command": command,
            "env": [{"name": "PYTHONPATH", "value": paths}],
            "resources": {"limits": {GPU: "1"}},
        }
        self.create(name, {"restartPolicy": "Never", "priorityClassName": priority, "containers": [box]})

    def create(self, name: str, spec: Unstructured) -> None:
        api = self._api()
        try:  # one that has ended may still bear the name
            api.call("DELETE", f"/api/v1/namespaces/default/pods/{name}")
            self.until(lambda: not self._exists(name))
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
        api.call("POST", "/api/v1/namespaces/default/pods", {"metadata": {"name": name}, "spec": spec})

    def pod(self, name: str) -> Unstructured:
        return self._api().get(f"/api/v1/namespaces/default/pods/{name}")

    def phase(self, name: str, *phases: str) -> None:
        def there() -> bool:
            now = self.pod(name)["status"]["phase"]
            if now == "Failed" and "Failed" not in phases:
                raise RuntimeError(f"{name} failed: {self.pod(name)['status']} {self.log(name)[-600:]}")
            return now in phases

        self.until(there)

    def condition(self, name: str) -> str:
        for each in self.pod(name)["status"].get("conditions") or ():
            if each["type"] == "PodScheduled" and each["status"] == "False":
                return str(each.get("message", ""))
        return ""

    def log(self, name: str) -> str:
        try:
            return self._api().call("GET", f"/api/v1/namespaces/default/pods/{name}/log").decode()
        except urllib.error.HTTPError:
            return ""

    def logged(self, name: str, text: str) -> None:
        self.until(lambda: text in self.log(name))

    def match(self, name: str, pattern: str) -> str:
        found = re.search(pattern, self.log(name))
        return found[1] if found else ""

    def last_step(self, name: str) -> int:
        found = re.findall(r"^step (\d+) ", self.log(name), re.MULTILINE)
        return int(found[-1]) if found else 0

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE
        while not condition():
            if self.process is not None and self.process.poll() is not None:
                raise RuntimeError(f"windlass up has ended: {self.lines[-5:]}")
            if time.monotonic() > end:
                raise TimeoutError(f"not within {PATIENCE:g} s; last lines {self.lines[-5:]}")
            time.sleep(0.05)

    def _exists(self, name: str) -> bool:
        items = self._api().get("/api/v1/namespaces/default/pods")["items"]
        return any(pod["metadata"]["name"] == name for pod in items)

    def _waiting(self, name: str) -> Unstructured:
        statuses = self.pod(name)["status"].get("containerStatuses") or [{}]
        found: Unstructured = (statuses[0].get("state") or {}).get("waiting") or {}
        return found

    def _compute_processes(self) -> list[str]:
        asked = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader"]
        try:
            done = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=False)
        except OSError as error:
            return [str(error)]
        return done.stdout.split("\n")[:-1]

    def _api(self) -> Api:
        assert self.api is not None, "started"
        return self.api

    def _read(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))


SECTIONS = ("start", "share", "wait", "preempt", "resume", "inside", "watch", "stop")
TITLES = {
    "start": "The machine as a node",
    "share": "Two training scripts share the GPU",
    "wait": "A third waits, and is told why",
    "preempt": "A pod of higher priority preempts one, which saves its state on SIGTERM",
    "resume": "It resumes where it was",
    "inside": "Limits, and a pod that needs an image",
    "watch": "A fault of the pod's own making, told by the watch over the GPUs",
    "stop": "The end",
}


def markdown(record: Unstructured) -> str:
    how = "MPS" if record["mps"] else "time-slicing"
    lines = [f"# `windlass up --gpus real`, each GPU shared by two pods ({how})", ""]
    for name in SECTIONS:
        part = record.get(name) or {}
        lines += [f"## {TITLES[name]} ({part.get('took_s')} s)", "", "```json"]
        lines += [json.dumps(part.get("found"), indent=1, default=str), "```", ""]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--mps", action="store_true", help="share by MPS instead of time-slicing")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="up") as folder:
        story = Story(Path(folder), given.mps)
        try:
            for name in SECTIONS[:-1]:
                story.section(name, getattr(story, name))
                if story.failed:
                    break
        finally:
            story.section("stop", story.stop)
            story.record["log"] = story.lines[-200:]
            suffix = "-mps" if given.mps else ""
            given.out.mkdir(parents=True, exist_ok=True)
            (given.out / f"up{suffix}.json").write_text(json.dumps(story.record, indent=1, default=str))
            (given.out / f"up{suffix}.md").write_text(markdown(story.record))
    print(f"failed: {', '.join(story.failed)}" if story.failed else "all as told", flush=True)
    return 1 if story.failed else 0


if __name__ == "__main__":
    sys.exit(main())
