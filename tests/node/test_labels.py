"""GPU Feature Discovery's labels: the complete set, and the truth on nodes with several models."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine
from tests.sharing.gpus import gpu, inventory

from windlass.node.labels.features import family_of, layout, node_labels
from windlass.node.labels.sinks import FileSink
from windlass.sharing.inventory import Inventory
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


def sliced(**fields: Any) -> dict[str, Any]:
    return {"sharing": {"timeSlicing": {"resources": [{"name": "gpu", "replicas": 4}], **fields}}}


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
        text, ill = layout(self.MIXED, frozenset([self.MIXED.gpus[2].uuid]))
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
    FileSink(file).put({"nvidia.com/b": "2", "nvidia.com/a": "1"})
    assert file.read_text() == "nvidia.com/a=1\nnvidia.com/b=2\n"
    assert [path.name for path in file.parent.iterdir()] == ["gfd"]
