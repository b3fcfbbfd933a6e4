"""Plays a world on `windlass up`: the process that users start, over sockets, in real time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import msgspec
import yaml
from tests.real_cluster.api import Api
from tests.worlds.draw_world import WorldSpec
from tests.worlds.live_cluster import PROGRAM_NICE, LiveCluster, end

from windlass.model.configuration_document import settings_document

START_SECONDS = 120.0


class UpCluster(LiveCluster):
    cannot = LiveCluster.cannot | {"restart_scheduler"}

    def __init__(self, spec: WorldSpec, folder: Path) -> None:
        super().__init__(folder / "record")
        self._folder = folder
        self._kubeconfig, self._log = folder / "kubeconfig", folder / "up.log"
        fleet = {"apiVersion": spec.fleet.api_version, "kind": "Fleet", **msgspec.to_builtins(spec.fleet)}
        (folder / "fleet.yaml").write_text(yaml.safe_dump(fleet))
        (folder / "config.yaml").write_text(yaml.safe_dump(settings_document(spec.settings)))
        self._process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        command = ["nice", "-n", str(PROGRAM_NICE), sys.executable, "-m", "tests.worlds.recorded_up", str(self.record)]
        command += ["up", "--no-page"]
        command += ["--port=0", f"--write-kubeconfig={self._kubeconfig}", f"--fleet={self._folder / 'fleet.yaml'}"]
        command += [f"--config={self._folder / 'config.yaml'}"]
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + START_SECONDS
        while not self._kubeconfig.exists() or not Api(self._kubeconfig).healthy():
            assert self._process.poll() is None, self._log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < deadline, "windlass up did not start"
            time.sleep(0.1)
        self.api = Api(self._kubeconfig)

    def fail(self, target: str) -> None:
        self.api.post("/windlass/sandbox", {"action": "fail", "target": target})

    def heal(self) -> None:
        self.api.post("/windlass/sandbox", {"action": "heal"})

    def shut_down(self) -> None:
        if self._process is not None:
            end(self._process)
