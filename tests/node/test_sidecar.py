"""The sidecar: labels that disable parts, pods of other owners, MIG, health Events and allocated devices."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine, until
from tests.node.test_part_owners import operand

from windlass.model.errors import ClusterUnreachable
from windlass.node import device_cordon, sidecar
from windlass.node.backend.protocol import DeviceError
from windlass.node.config_source import ConfigSource
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.exporter.counters import default_counters
from windlass.node.exporter.exporter import Exporter
from windlass.node.exporter.metrics_server import MetricsServer
from windlass.node.health import HealthChange
from windlass.node.health_journal import HealthJournal, write_journal
from windlass.node.host_root import HostRoot
from windlass.node.labels.sinks import FileSink
from windlass.node.preferred_devices import PreferredDevicesFile
from windlass.node.reporter import Reporter
from windlass.node.sidecar import Sidecar, SidecarOptions, SidecarParts

PLUGIN_OFF = "nvidia.com/gpu.deploy.device-plugin"


class FakeApi:
    """An API server that a test writes by hand."""

    def __init__(self, pods: list[dict[str, Any]] | None = None) -> None:
        self.node: dict[str, Any] = {"metadata": {"name": "n1", "labels": {}}}
        self.here = pods or []
        self.patches: list[dict[str, Any]] = []
        self.events: list[str] = []
        self.given: dict[str, str] = {}
        self.nodes: queue.Queue[dict[str, Any]] = queue.Queue()

    def get_node(self) -> dict[str, Any]:
        return self.node

    def list_pods(self) -> list[dict[str, Any]]:
        return self.here

    def patch_node(self, **changes: Any) -> dict[str, Any]:
        self.patches.append(changes)
        return self.node

    def create_event(self, *, reason: str, message: str, **more: Any) -> None:
        self.events.append(f"{reason}: {message}")

    def annotate_pod(self, namespace: str, name: str, annotations: dict[str, str]) -> None:
        self.given[name] = annotations["windlass.dev/allocated-devices"]

    def watch_node(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "LISTED", {"items": [self.node]}
        while True:
            yield "MODIFIED", self.nodes.get(timeout=30)

    def watch_pods(self) -> Iterator[tuple[str, dict[str, Any]]]:
        yield "LISTED", {"items": self.here}
        self.nodes.join()

    def label(self, **labels: str) -> None:
        self.nodes.put(
            {
                "metadata": {
                    "name": "n1",
                    "labels": {name.replace("__", "/"): value for name, value in labels.items()},
                }
            }
        )


class Given:
    """PodResources without a kubelet."""

    def __init__(self) -> None:
        self.held: dict[str, list[DeviceHolder]] = {}
        self.is_silent = False

    def holders(self, uids: object = None) -> dict[str, list[DeviceHolder]]:
        return {} if self.is_silent else self.held

    def holders_or_raise(self, uids: object = None) -> dict[str, list[DeviceHolder]]:
        if self.is_silent:
            raise DeviceError("kubelet.sock didn't answer: timed out")
        return self.held


class CountingSink(FileSink):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.puts: list[dict[str, str]] = []
        self.refusals = 0

    def write_labels(self, labels: Mapping[str, str]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise ClusterUnreachable("not now")
        super().write_labels(labels)
        self.puts.append(dict(labels))


class Scene:
    def __init__(self, folder: Path, api: FakeApi, *, config_label: str = "", **flags: str) -> None:
        self.folder = folder
        self.api = api
        self.backend = machine(folder=folder / "machine")
        self.given = Given()
        self.log: list[str] = []
        self.sink = CountingSink(folder / "features")
        root = HostRoot(folder / "machine")
        self.exporter = Exporter(self.backend, default_counters(), hostname="n1", root=root)
        self.metrics = MetricsServer(self.exporter, "127.0.0.1", 0)
        self.sidecar = Sidecar(
            self.backend,
            root,
            ConfigSource(None, {}, {"--sleep-interval": "1s", **flags}),
            SidecarOptions(
                parts=frozenset(["plugin", "exporter", "labels", "mig"]),
                interval=0.05,
                report_seconds=0.05,
                state=folder / "state",
                config_label=config_label,
            ),
            SidecarParts(
                api=api,  # type: ignore[arg-type]
                pods=self.given,  # type: ignore[arg-type]
                exporter=self.exporter,
                metrics=self.metrics,
                sink=self.sink,
            ),
            self.log.append,
        )
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self.sidecar.run, args=(self.stop,), daemon=True)

    @property
    def switch(self) -> Path:
        return self.folder / "state/device-plugin.off"


@pytest.fixture(autouse=True)
def no_plugin_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_cordon, "ACKNOWLEDGE_TIMEOUT_SECONDS", 0.05)


@pytest.fixture
def scenes(tmp_path: Path) -> Iterator[list[Scene]]:
    made: list[Scene] = []
    yield made
    for scene in made:
        scene.stop.set()
        scene.api.label()
        scene.thread.join(10)


def started(scenes: list[Scene], folder: Path, pods: list[dict[str, Any]] | None = None, **flags: str) -> Scene:
    scene = Scene(folder, FakeApi(pods), **flags)
    scenes.append(scene)
    scene.thread.start()
    return scene


def pod(name: str, app: str = "", **annotations: str) -> dict[str, Any]:
    return {
        "metadata": {
            "name": name,
            "namespace": "team",
            "uid": f"uid-{name}",
            "labels": {"app": app},
            "annotations": {f"windlass.dev/{key}": value for key, value in annotations.items()},
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        "status": {"phase": "Running" if app else "Pending"},
    }


def test_labels_of_the_node_switch_parts_off_and_on(scenes: list[Scene], tmp_path: Path) -> None:
    scene = started(scenes, tmp_path)
    until(lambda: scene.exporter.metrics_text, what="the exporter works")
    scene.api.label(
        **{"nvidia.com__gpu.deploy.device-plugin": "false", "nvidia.com__gpu.deploy.dcgm-exporter": "false"}
    )
    until(lambda: scene.switch.exists() and not scene.exporter.metrics_text, what="both are off")
    scene.api.label(**{"nvidia.com__gpu.deploy.device-plugin": "true"})
    until(lambda: not scene.switch.exists() and scene.exporter.metrics_text, what="both are on again")


def test_the_driver_is_closed_while_every_part_is_paused(scenes: list[Scene], tmp_path: Path) -> None:
    """As the GPU operator pauses them, before it exchanges the driver."""

    def holders() -> list[str]:
        return scene.backend.store.read().holders

    scene = started(scenes, tmp_path)
    parts = ("device-plugin", "dcgm-exporter", "gpu-feature-discovery", "mig-manager")
    paused = {f"nvidia.com__gpu.deploy.{part}": "paused-for-driver-upgrade" for part in parts}
    scene.api.label(**{**paused, "nvidia.com__gpu.deploy.mig-manager": "true"})
    until(lambda: len(holders()) == 1, what="one part needs it")
    scene.api.label(**paused)
    until(lambda: holders() == [], what="it is closed")
    scene.api.label()
    until(lambda: len(holders()) == 1, what="it is open again")


def test_another_owner_keeps_a_part_off_and_is_named(scenes: list[Scene], tmp_path: Path) -> None:
    theirs = [operand("nvidia-device-plugin-daemonset"), operand("nvidia-mig-manager")]
    scene = started(scenes, tmp_path, theirs)
    until(lambda: scene.switch.exists(), what="the plugin is kept off")
    assert any("gpu-operator/p does its job" in line and PLUGIN_OFF in line for line in scene.log)
    scene.api.label(**{"nvidia.com__mig.config": "all-1g.10gb"})
    until(lambda: scene.api.nodes.empty())
    assert not [change for change in scene.api.patches if change.get("labels")]
    assert scene.switch.exists()


def test_a_tenants_pod_with_the_label_of_an_owner_keeps_nothing_off(scenes: list[Scene], tmp_path: Path) -> None:
    tenants = [pod("mine", app) for app in ("nvidia-device-plugin-daemonset", "dcgm-exporter", "nvidia-mig-manager")]
    scene = started(scenes, tmp_path, tenants)
    until(lambda: scene.exporter.metrics_text, what="the exporter works")
    scene.api.label(**{"nvidia.com__mig.config": "all-1g.10gb"})
    until(lambda: mig_states(scene)[-1:] == ["success"], what="MIG is cut")
    assert not scene.switch.exists()
    assert any("plugin starts although team/mine" in line for line in scene.log)


def mig_states(scene: Scene) -> list[str]:
    return [change["labels"]["nvidia.com/mig.config.state"] for change in scene.api.patches if change.get("labels")]


def test_nothing_is_cut_while_the_kubelet_cant_say_who_holds_what(
    scenes: list[Scene], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "RETRY_SECONDS", 0.05)
    scene = started(scenes, tmp_path)
    scene.given.is_silent = True
    scene.api.label(**{"nvidia.com__mig.config": "all-1g.10gb"})
    until(lambda: "failed" in mig_states(scene), 20, "the change fails")
    assert not any(gpu.mig_enabled for gpu in scene.backend.inventory().gpus)
    (reason,) = [
        change["annotations"]["windlass.dev/mig-config-reason"]
        for change in list(scene.api.patches)
        if (change.get("labels") or {}).get("nvidia.com/mig.config.state") == "failed"
    ]
    assert "didn't answer" in reason
    scene.given.is_silent = False
    until(lambda: mig_states(scene)[-1:] == ["success"], 20, "and is made up for")
    assert all(len(gpu.instances) == 7 for gpu in scene.backend.inventory().gpus)


def test_mig_is_done_and_told(scenes: list[Scene], tmp_path: Path) -> None:
    scene = started(scenes, tmp_path)
    scene.api.label(**{"nvidia.com__mig.config": "all-1g.10gb"})
    until(lambda: mig_states(scene) == ["pending", "success"], what="pending, then success")
    assert len(scene.backend.inventory().gpus[7].instances) == 7


def test_health_becomes_events_and_annotations(scenes: list[Scene], tmp_path: Path) -> None:
    scene = started(scenes, tmp_path)
    uuid = scene.backend.inventory().gpus[3].uuid
    until(lambda: scene.api.patches, what="the node is described")
    journal = HealthJournal(unhealthy={uuid: "Xid 48"})
    journal.add(HealthChange(uuid=uuid, healthy=False, reason="Xid 48", action="drain the GPU and reset it"))
    write_journal(tmp_path / "state/health.json", journal)
    until(lambda: scene.api.events, what="an event")
    assert scene.api.events == [f"GPUUnhealthy: {uuid}: Xid 48: drain the GPU and reset it"]
    until(
        lambda: any(
            (change.get("annotations") or {}).get("windlass.dev/unhealthy-devices") == "3"
            for change in scene.api.patches
        ),
        what="the index is in the annotation",
    )


def test_wishes_are_left_for_the_plugin_and_gifts_written_back(scenes: list[Scene], tmp_path: Path) -> None:
    scene = started(scenes, tmp_path, [pod("waits", devices="4,5"), pod("has")])
    preferred = PreferredDevicesFile(tmp_path / "state/preferred-devices.json")
    until(lambda: preferred("nvidia.com/gpu", 2) == (4, 5), what="the preferred is known")
    assert preferred("nvidia.com/gpu", 1) == ()
    uuids = [gpu.uuid for gpu in scene.backend.inventory().gpus]
    scene.given.held = {
        uuids[1]: [DeviceHolder("has", "team", "main")],
        uuids[6]: [DeviceHolder("has", "team", "main")],
    }
    until(lambda: scene.api.given == {"has": "1,6"}, what="what was given is written back")


def test_labels_go_to_the_sink(scenes: list[Scene], tmp_path: Path) -> None:
    started(scenes, tmp_path)
    file = tmp_path / "features"
    until(
        lambda: file.exists() and "nvidia.com/gpu.count=8" in file.read_text(),
        what="the feature file is there",
    )


TIMESTAMP = "nvidia.com/gfd.timestamp"


def test_labels_come_again_and_the_timestamp_stays(scenes: list[Scene], tmp_path: Path) -> None:
    """A label that changed every minute would wake everybody who watches nodes."""
    scene = started(scenes, tmp_path)
    until(lambda: len(scene.sink.puts) >= 3, what="three rounds")
    assert len({found[TIMESTAMP] for found in scene.sink.puts}) == 1
    assert re.fullmatch("[0-9]{10}", scene.sink.puts[0][TIMESTAMP])


@pytest.mark.parametrize("flags", [{"--sleep-interval": "infinite"}, {"--oneshot": "true"}])
def test_labels_can_be_written_just_once(
    scenes: list[Scene], tmp_path: Path, flags: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecar, "RETRY_SECONDS", 0.05)
    scene = Scene(tmp_path, FakeApi(), **flags)
    scene.sink.refusals = 2
    scenes.append(scene)
    scene.thread.start()
    until(lambda: scene.sink.puts, what="a refusal is tried again")
    until(lambda: all(thread.name != "labels" for thread in threading.enumerate()), what="and then it is done")
    assert len(scene.sink.puts) == 1


def test_a_virtual_gpu_is_told_from_its_configuration_space(scenes: list[Scene], tmp_path: Path) -> None:
    space = bytearray(256)
    space[0x06], space[0x34] = 0x10, 0x40
    space[0x40:0x45] = bytes([0x09, 0, 27]) + b"VF"
    space[0x45:0x5B] = bytes([0, 22]) + b"535.161".ljust(10, b"\0") + b"r535_00".ljust(10, b"\0")
    scene = Scene(tmp_path, FakeApi())
    scenes.append(scene)
    bus = scene.backend.inventory().gpus[0].bus_id
    (tmp_path / f"machine/sys/bus/pci/devices/{bus}/config").write_bytes(bytes(space))
    scene.thread.start()
    until(lambda: scene.sink.puts, what="labels are written")
    assert scene.sink.puts[0]["nvidia.com/vgpu.host-driver-branch"] == "r535_00"


def test_the_node_says_how_its_containers_get_gpus(tmp_path: Path) -> None:
    """Written by the plugin process, annotated by the sidecar, once per change."""
    api, state = FakeApi(), tmp_path / "container-gpus"
    reporter = Reporter(machine(), api, tmp_path / "health.json", pods=dict, holders=dict)
    told = []
    for text in ("", "devices come by CDI", "devices come by CDI", "nothing carries out envvar"):
        state.write_text(text)
        reporter.report()
        told.append([patch["annotations"]["windlass.dev/container-gpus"] for patch in api.patches])
    assert told[-1] == [None, "devices come by CDI", "nothing carries out envvar"]


@pytest.mark.parametrize("policy", ["", "single-numa-node"])
def test_the_node_says_what_its_kubelets_topology_manager_asks_for(tmp_path: Path, policy: str) -> None:
    """Nothing where the kubelet's configuration can't be found: somebody may have written it."""
    api = FakeApi()
    Reporter(machine(), api, tmp_path / "health.json", pods=dict, holders=dict, kubelet_policy=lambda: policy).report()
    (patch,) = api.patches
    assert patch["annotations"].get("windlass.dev/topology-manager", "") == policy
