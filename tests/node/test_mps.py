"""MPS: the daemon's folders, limits and life, with a program that stands in for NVIDIA's."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.machines import machine

from windlass.node.backend.protocol import DeviceError
from windlass.node.mps import MpsDaemon
from windlass.node.plugin.sharing_setup import SharingSetup
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.plugin_config import PluginConfig, resolve_config

FAKE = """\
#!/bin/sh
# Answers as nvidia-cuda-mps-control does, and writes down what it was told.
pipe="$CUDA_MPS_PIPE_DIRECTORY"
if [ "$1" = "-d" ]; then
  [ -e "{folder}/broken" ] && {{ echo "no daemon today"; exit 1; }}
  touch "$pipe/control"; echo "start $CUDA_VISIBLE_DEVICES" >> "{folder}/told"; exit 0
fi
[ -e "$pipe/control" ] || {{ echo "Cannot find MPS control daemon process"; exit 1; }}
while read -r line; do
  echo "$line" >> "{folder}/told"
  case "$line" in
    quit) rm "$pipe/control" ;;
    get_default_active_thread_percentage) echo 25.0 ;;
  esac
done
"""


class Scene:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        program = folder / "bin/nvidia-cuda-mps-control"
        program.parent.mkdir()
        program.write_text(FAKE.format(folder=folder))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=":")
        self.backend = machine("H200", 2)
        self.root = folder / "mps"
        self.log: list[str] = []
        self.now = 0.0
        self.setup = SharingSetup(self.backend, self.log.append, clock=lambda: self.now)

    @property
    def told(self) -> list[str]:
        file = self.folder / "told"
        return file.read_text().splitlines() if file.exists() else []

    def config(self, replicas: int = 4) -> PluginConfig:
        entry = {"name": "nvidia.com/gpu", "replicas": replicas}
        return resolve_config({"flags": {"mpsRoot": str(self.root)}, "sharing": {"mps": {"resources": [entry]}}})

    def follow(self, config: PluginConfig | None = None) -> dict[str, str]:
        chosen = config or self.config()
        inventory = self.backend.inventory()
        return self.setup.sync(inventory, chosen, advertised_resources(inventory, chosen))


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    return Scene(tmp_path, monkeypatch)


def test_folders_and_equal_limits(scene: Scene) -> None:
    gpus = scene.backend.inventory().gpus
    daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", gpus, 4)
    daemon.start()
    for name in ("nvidia.com/gpu/pipe", "nvidia.com/gpu/log", "nvidia.com/gpu/.started", "shm"):
        assert (scene.root / name).exists()
    assert scene.told == [
        f"start {gpus[0].uuid},{gpus[1].uuid}",
        "set_default_device_pinned_mem_limit 0 35942M",
        "set_default_device_pinned_mem_limit 1 35942M",
        "set_default_active_thread_percentage 25",
    ]
    assert daemon.is_alive()
    daemon.stop()
    assert not daemon.is_alive()
    assert not (scene.root / "nvidia.com/gpu/.started").exists()


def test_the_agent_starts_it_once_and_again_when_it_dies(scene: Scene) -> None:
    assert scene.follow() == {}
    assert scene.follow() == {}
    assert sum(line.startswith("start") for line in scene.told) == 1
    (scene.root / "nvidia.com/gpu/pipe/control").unlink()
    scene.now += 10
    assert scene.follow() == {}
    assert sum(line.startswith("start") for line in scene.told) == 2
    assert any("does not answer" in line for line in scene.log)


def test_without_a_daemon_nobody_gets_the_device(scene: Scene) -> None:
    (scene.folder / "broken").touch()
    ills = scene.follow()
    assert set(ills) == {gpu.uuid for gpu in scene.backend.inventory().gpus}
    assert all("no daemon today" in why for why in ills.values())
    (scene.folder / "broken").unlink()
    scene.now += 10
    assert scene.follow() == {}


def test_a_changed_config_starts_it_anew_and_another_way_stops_it(scene: Scene) -> None:
    scene.follow()
    scene.follow(scene.config(2))
    assert "quit" in scene.told
    assert "set_default_active_thread_percentage 50" in scene.told
    scene.follow(resolve_config())
    assert scene.told[-1] == "quit"


def test_a_gpu_that_refuses_exclusive_mode_is_said(scene: Scene) -> None:
    scene.backend.inject(0, refuses=["exclusive"])
    daemon = MpsDaemon(scene.backend, scene.root, "nvidia.com/gpu", scene.backend.inventory().gpus, 2)
    with pytest.raises(DeviceError, match="compute mode"):
        daemon.start()


def test_time_slices_are_set_once(scene: Scene) -> None:
    setup = SharingSetup(scene.backend, scene.log.append, interval="long")
    entry = {"name": "nvidia.com/gpu", "replicas": 2}
    config = resolve_config({"sharing": {"timeSlicing": {"resources": [entry]}}})
    inventory = scene.backend.inventory()
    for _ in range(2):
        assert setup.sync(inventory, config, advertised_resources(inventory, config)) == {}
    assert sum("time slice long" in line for line in scene.log) == 2
