"""GPU Feature Discovery's labels: the complete set, and the truth on nodes with several models."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.node.machines import machine
from tests.sharing.gpus import gpu, inventory

from windlass.model.errors import ClusterUnreachable
from windlass.node.agent import AgentOptions, make_label_sink
from windlass.node.labels.features import device_annotations, family_of, node_labels
from windlass.node.labels.sinks import FileSink, NodeFeatureSink, owner_references
from windlass.node.labels.vgpu import HostDriver, VirtualGpus
from windlass.sharing.inventory import Driver, Inventory
from windlass.sharing.plugin_config import resolve_config

ALWAYS = (
    "cuda.driver.major",
    "cuda.driver.minor",
    "cuda.driver.rev",
    "cuda.runtime.major",
    "cuda.runtime.minor",
    "cuda.driver-version.major",
    "cuda.driver-version.minor",
    "cuda.driver-version.revision",
    "cuda.driver-version.full",
    "cuda.runtime-version.major",
    "cuda.runtime-version.minor",
    "cuda.runtime-version.full",
    "gpu.machine",
    "gpu.count",
    "gpu.replicas",
    "gpu.sharing-strategy",
    "gpu.product",
    "gpu.memory",
    "gpu.family",
    "gpu.compute.major",
    "gpu.compute.minor",
    "gpu.mode",
    "mig.capable",
    "mps.capable",
    "gfd.timestamp",
    "vgpu.present",
)
OF_INSTANCES = (
    "product",
    "count",
    "replicas",
    "sharing-strategy",
    "memory",
    "multiprocessors",
    "slices.gi",
    "slices.ci",
    "engines.copy",
    "engines.decoder",
    "engines.encoder",
    "engines.jpeg",
    "engines.ofa",
)


def labels(found: Inventory, file: Any = None) -> dict[str, str]:
    made = node_labels(found, resolve_config(file), machine="DGX H100", timestamp=1700000000)
    return {name.removeprefix("nvidia.com/"): value for name, value in made.items()}


def sliced(name: str = "gpu", **fields: Any) -> dict[str, Any]:
    return {"sharing": {"timeSlicing": {"resources": [{"name": name, "replicas": 4}], **fields}}}


def by_mps(name: str = "gpu", **fields: Any) -> dict[str, Any]:
    section = {"resources": [{"name": name, "replicas": 2}], **fields}
    return {"flags": {"mpsRoot": "/run/mps"}, "sharing": {"mps": section}}


class TestTheSet:
    def test_a_plain_node(self) -> None:
        made = labels(inventory(gpu("H100"), gpu("H100", 1)))
        assert set(made) == set(ALWAYS)
        assert made["gpu.product"] == "NVIDIA-H100-80GB-HBM3"
        assert (made["gpu.count"], made["gpu.memory"], made["gpu.family"]) == ("2", "81559", "hopper")
        assert made["cuda.driver-version.full"] == "580.159.04"
        assert made["gpu.machine"] == "DGX-H100"
        assert made["gpu.mode"] == "compute"

    def test_every_value_can_be_a_label(self) -> None:
        found = machine("H200", 2, mig=("1g.18gb", "1g.18gb+me", "2g.35gb")).inventory()
        for value in node_labels(found, resolve_config({"flags": {"migStrategy": "mixed"}})).values():
            assert re.fullmatch(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value)

    def test_mixed_describes_every_profile(self) -> None:
        found = machine("H200", 1, mig=("1g.18gb", "1g.18gb", "3g.71gb")).inventory()
        made = labels(found, {"flags": {"migStrategy": "mixed"}})
        for name in OF_INSTANCES:
            assert f"mig-1g.18gb.{name}" in made
        assert made["mig-1g.18gb.count"] == "2"
        assert made["mig-3g.71gb.memory"] == "71424"
        assert made["mig-3g.71gb.multiprocessors"] == "60"
        assert made["mig-3g.71gb.product"] == "NVIDIA-H200-MIG-3g.71gb"
        assert made["mig.strategy"] == "mixed"

    def test_single_describes_instances_as_gpus(self) -> None:
        found = machine("H200", 2, mig=("1g.18gb",) * 7).inventory()
        made = labels(found, {"flags": {"migStrategy": "single"}})
        assert made["gpu.product"] == "NVIDIA-H200-MIG-1g.18gb"
        assert (made["gpu.count"], made["gpu.memory"], made["gpu.slices.gi"]) == ("14", "16384", "1")

    def test_single_on_a_node_that_it_can_not_name(self) -> None:
        found = machine("H200", 1, mig=("1g.18gb", "2g.35gb")).inventory()
        made = labels(found, {"flags": {"migStrategy": "single"}})
        assert made["gpu.product"] == "NVIDIA-H200-MIG-INVALID"
        assert (made["gpu.count"], made["gpu.replicas"], made["gpu.memory"]) == ("0", "0", "0")
        assert made["gpu.sharing-strategy"] == ""

    def test_no_gpus_no_labels(self) -> None:
        assert labels(inventory()) == {}

    def test_without_a_timestamp(self) -> None:
        assert "gfd.timestamp" not in labels(inventory(gpu()), {"flags": {"gfd": {"noTimestamp": True}}})


class TestSharing:
    def test_shared_and_not_renamed_is_in_the_product(self) -> None:
        made = labels(inventory(gpu("H100")), sliced())
        assert made["gpu.product"] == "NVIDIA-H100-80GB-HBM3-SHARED"
        assert (made["gpu.replicas"], made["gpu.sharing-strategy"]) == ("4", "time-slicing")

    def test_shared_and_renamed_is_not(self) -> None:
        made = labels(inventory(gpu("H100")), sliced(renameByDefault=True))
        assert made["gpu.product"] == "NVIDIA-H100-80GB-HBM3"
        assert made["gpu.replicas"] == "4"

    @pytest.mark.parametrize("way", [sliced, by_mps])
    def test_sharing_of_another_resource_is_no_matter_here(self, way: Any) -> None:
        made = labels(inventory(gpu("H100")), way("other"))
        assert made["gpu.product"] == "NVIDIA-H100-80GB-HBM3"
        assert (made["gpu.replicas"], made["gpu.sharing-strategy"]) == ("1", "none")

    def test_mps_says_so(self) -> None:
        made = labels(inventory(gpu("H100")), by_mps())
        assert made["gpu.product"].endswith("-SHARED")
        assert (made["gpu.replicas"], made["gpu.sharing-strategy"]) == ("2", "mps")
        assert not labels(inventory(gpu("H100")), by_mps(renameByDefault=True))["gpu.product"].endswith("SHARED")

    @pytest.mark.parametrize("strategy", ["none", "mixed"])
    def test_a_gpu_that_is_cut_is_not_shared_as_a_whole(self, strategy: str) -> None:
        cut = inventory(gpu("H100", 0, []), gpu("H100", 1, []))
        made = labels(cut, {"flags": {"migStrategy": strategy}, **sliced()})
        assert made["gpu.product"] == "NVIDIA-H100-80GB-HBM3"
        assert (made["gpu.count"], made["gpu.replicas"], made["gpu.sharing-strategy"]) == ("2", "0", "none")

    def test_beside_one_that_is_not_cut_that_one_speaks(self) -> None:
        made = labels(inventory(gpu("H100", 0, []), gpu("H100", 1)), sliced())
        assert made["gpu.product"].endswith("-SHARED")
        assert (made["gpu.count"], made["gpu.replicas"]) == ("2", "4")

    @pytest.mark.parametrize(
        ("strategy", "name", "where"),
        [("single", "gpu", "gpu"), ("mixed", "mig-1g.18gb", "mig-1g.18gb")],
    )
    @pytest.mark.parametrize("renamed", [False, True])
    def test_instances_that_are_shared(self, strategy: str, name: str, where: str, renamed: bool) -> None:
        found = machine("H200", 1, mig=("1g.18gb",) * 7).inventory()
        file = {"flags": {"migStrategy": strategy}, **sliced(name, renameByDefault=renamed)}
        made = labels(found, file)
        product = "NVIDIA-H200-MIG-1g.18gb"
        assert made[f"{where}.product"] == (product if renamed else f"{product}-SHARED")
        assert (made[f"{where}.count"], made[f"{where}.replicas"]) == ("7", "4")
        assert made[f"{where}.sharing-strategy"] == "time-slicing"


class TestCapabilities:
    def test_mig_where_any_gpu_has_it(self) -> None:
        assert labels(inventory(gpu("T4")))["mig.capable"] == "false"
        assert labels(inventory(gpu("T4"), gpu("T4", 1)))["mig.capable"] == "false"
        assert labels(inventory(gpu("T4"), gpu("H100", 1)))["mig.capable"] == "true"

    def test_mps_where_it_is_configured_and_can_be_done(self) -> None:
        plain = inventory(gpu("H100"))
        assert labels(plain)["mps.capable"] == "false"
        assert labels(plain, sliced())["mps.capable"] == "false"
        assert labels(plain, by_mps())["mps.capable"] == "true"
        cut = inventory(gpu("H100"), gpu("H100", 1, []))
        assert labels(cut, by_mps())["mps.capable"] == "false", "and the other labels stay"

    @pytest.mark.parametrize(
        ("classes", "mode"),
        [
            (["0x030000"], "graphics"),
            (["0x030200"], "compute"),
            (["0x068000"], "unknown"),
            (["0x000000"], "unknown"),
            (["0x030200"] * 3, "compute"),
            (["0x030000"] * 3, "graphics"),
            (["0x030000", "0x030200", "0x030000"], "unknown"),
        ],
    )
    def test_the_mode_is_the_pci_class_that_all_have(self, classes: list[str], mode: str) -> None:
        found = inventory(*(gpu("H100", at, pci_class=value) for at, value in enumerate(classes)))
        assert labels(found)["gpu.mode"] == mode

    @pytest.mark.parametrize(
        ("cliques", "label"),
        [
            (["", ""], None),
            (["abc.1", "abc.1"], "abc.1"),
            (["abc.1", ""], "abc.1"),
            (["abc.1", "abc.2"], None),
            (["abc.1", "def.1"], None),
        ],
    )
    def test_the_clique_of_those_that_are_on_a_fabric(self, cliques: list[str], label: str | None) -> None:
        found = inventory(*(gpu("H100", at, clique=clique) for at, clique in enumerate(cliques)))
        assert labels(found).get("gpu.clique") == label

    def test_a_gpu_without_memory_of_its_own_has_no_label_for_it(self) -> None:
        assert "gpu.memory" not in labels(inventory(gpu("T4", memory_mib=0)))

    def test_a_virtual_gpu_names_the_driver_below(self) -> None:
        host = VirtualGpus(True, HostDriver("535.161", "r535_00"))
        made = node_labels(inventory(gpu("T4")), resolve_config(), virtual=host)
        assert made["nvidia.com/vgpu.present"] == "true"
        assert made["nvidia.com/vgpu.host-driver-version"] == "535.161"
        assert made["nvidia.com/vgpu.host-driver-branch"] == "r535_00"

    @pytest.mark.parametrize(
        ("version", "parts"), [("470.57.02", ("470", "57", "02")), ("400.300", ("400", "300", ""))]
    )
    def test_versions_of_two_or_three_parts(self, version: str, parts: tuple[str, str, str]) -> None:
        found = Inventory(Driver(version, (12, 4)), (gpu("T4"),))
        made = labels(found)
        for name in ("cuda.driver.{}", "cuda.driver-version.{}"):
            last = "rev" if name == "cuda.driver.{}" else "revision"
            assert tuple(made[name.format(part)] for part in ("major", "minor", last)) == parts
        assert made["cuda.runtime-version.full"] == "12.4"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a few words", "a-few-words"),
        ("with(out)brackets", "withoutbrackets"),
        ("room ( inside )them", "room-inside-them"),
        ("NVIDIA-TITAN-X-(Pascal)", "NVIDIA-TITAN-X-Pascal"),
        ("  blanks   all over  ", "blanks-all-over"),
        ("some [ / thing / ]else", "some-thing-else"),
        ("one / two /three", "one-two-three"),
        ("kept-as.it_is", "kept-as.it_is"),
    ],
)
def test_words_become_values(text: str, value: str) -> None:
    made = node_labels(inventory(gpu("T4", name=text)), resolve_config(), machine=text)
    assert made["nvidia.com/gpu.machine"] == made["nvidia.com/gpu.product"] == value


class TestSeveralModels:
    MIXED = inventory(gpu("T4", 0), gpu("H100", 1), gpu("H100", 2))

    def test_labels_speak_of_the_model_that_most_gpus_are(self) -> None:
        made = labels(self.MIXED)
        assert made["gpu.product"] == "NVIDIA-H100-80GB-HBM3"
        assert made["gpu.count"] == "2"

    def test_and_never_flip(self) -> None:
        turned = inventory(*reversed(self.MIXED.gpus))
        assert labels(turned) == labels(self.MIXED)

    def test_the_annotation_has_the_whole_truth(self) -> None:
        text, ill = device_annotations(self.MIXED, frozenset([self.MIXED.gpus[2].uuid]))
        assert "Tesla-T4" in text
        assert text.count("NVIDIA-H100-80GB-HBM3") == 2
        assert ill == "2"


@pytest.mark.parametrize(
    ("compute", "family"),
    [
        ((7, 0), "volta"),
        ((7, 5), "turing"),
        ((8, 0), "ampere"),
        ((8, 9), "ada-lovelace"),
        ((9, 0), "hopper"),
        ((10, 0), "blackwell"),
        ((99, 0), "undefined"),
    ],
)
def test_families(compute: tuple[int, int], family: str) -> None:
    assert family_of(compute) == family


def test_the_feature_file_is_lines(tmp_path: Path) -> None:
    file = tmp_path / "features.d/gfd"
    FileSink(file).write_labels({"nvidia.com/b": "2", "nvidia.com/a": "1"})
    assert file.read_text() == "nvidia.com/a=1\nnvidia.com/b=2\n"
    assert [path.name for path in file.parent.iterdir()] == ["gfd"]


def test_the_feature_file_is_the_hosts_where_the_pod_does_not_mount_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that `useNodeFeatureAPI: false` asks for: NFD never sees a file inside the container."""
    monkeypatch.setenv("HOST_ROOT", str(tmp_path))
    flags = {"gfd": {"outputFile": "/etc/windlass-test/features.d/gfd"}}
    config: Any = SimpleNamespace(config=resolve_config({"flags": flags}))
    make_label_sink(AgentOptions(without_api=True), config, None).write_labels({"nvidia.com/a": "1"})
    assert (tmp_path / "etc/windlass-test/features.d/gfd").read_text() == "nvidia.com/a=1\n"


DAEMON = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "windlass-node", "uid": "uid-of-the-set"}


def agent_pod(*owners: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "windlass-node-x", "uid": "uid-of-the-pod", "ownerReferences": list(owners)}}


class Features:
    """The two calls that a NodeFeature takes."""

    def __init__(self, pod: dict[str, Any] | None) -> None:
        self.here = pod
        self.owners: list[list[str]] = []

    def get_pod(self, namespace: str, name: str) -> dict[str, Any]:
        if self.here is None:
            raise ClusterUnreachable("no such pod")
        return self.here

    def apply_node_feature(self, namespace: str, labels: object, owners: list[dict[str, Any]]) -> None:
        self.owners.append([owner["uid"] for owner in owners])


class TestOwners:
    def test_the_daemon_set_and_its_pod_own_the_object(self) -> None:
        first, second = owner_references(agent_pod({**DAEMON, "blockOwnerDeletion": True}))
        assert first == {**DAEMON, "controller": True}
        assert second == {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": "windlass-node-x",
            "uid": "uid-of-the-pod",
        }

    @pytest.mark.parametrize("owners", [(), ({**DAEMON, "kind": "ReplicaSet"},)])
    def test_nobody_else_does(self, owners: tuple[dict[str, Any], ...]) -> None:
        assert owner_references(agent_pod(*owners)) == []

    def test_outside_of_a_pod_there_is_no_owner_and_nobody_is_asked(self) -> None:
        features = Features(None)
        NodeFeatureSink(features, "here").write_labels({})  # type: ignore[arg-type]
        assert features.owners == [[]]

    def test_a_pod_that_can_not_be_read_is_asked_for_again(self) -> None:
        features = Features(None)
        sink = NodeFeatureSink(features, "here", "windlass-node-x")  # type: ignore[arg-type]
        sink.write_labels({})
        features.here = agent_pod(DAEMON)
        sink.write_labels({})
        features.here = None
        sink.write_labels({})
        assert features.owners == [
            [],
            ["uid-of-the-set", "uid-of-the-pod"],
            ["uid-of-the-set", "uid-of-the-pod"],
        ]
