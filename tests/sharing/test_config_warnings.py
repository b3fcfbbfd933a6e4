"""What a config asks for and a node can't give is said, in the original's words where it has some."""

from __future__ import annotations

from typing import Any

import pytest
from tests.sharing.gpus import gpu, inventory

from windlass.sharing.config_warnings import ineffective_settings
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import resolve_config

PAIR = inventory(gpu(), gpu(index=1))
CUT = inventory(gpu(cuts=[("1g.18gb", 0), ("1g.18gb", 1)]), gpu(index=1, cuts=[]))


def entry(**fields: Any) -> dict[str, Any]:
    return {"name": "nvidia.com/gpu", "replicas": 2, **fields}


def warnings(found: Inventory, *entries: dict[str, Any], strategy: str = "none") -> list[str]:
    raw = {"flags": {"migStrategy": strategy}}
    if entries:
        raw["sharing"] = {"timeSlicing": {"resources": list(entries)}}
    return list(ineffective_settings(found, resolve_config(raw, honor_renames=True)))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (
            [entry(name="nvidia.com/mig-1g.18gb")],
            "resources[0].name: this node has no nvidia.com/mig-1g.18gb",
        ),
        (
            [entry(devices=3)],
            "[0].devices: requested 3 devices to be replicated, but only 2 devices available",
        ),
        ([entry(devices=[0, 2])], "[0].devices: no matching device at index: 2"),
        (
            [entry(devices=["GPU-99999999-0000-0000-0000-000000000000"])],
            "[0].devices: no matching device with UUID: GPU-99999999-0000-0000-0000-000000000000",
        ),
        ([entry(), entry(replicas=4)], "[1]: what it names is shared by an entry before it"),
    ],
)
def test_each_with_its_field(entries: list[dict[str, Any]], words: str) -> None:
    (found,) = warnings(PAIR, *entries)
    assert found.startswith("sharing.timeSlicing.")
    assert found.endswith(words)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [entry()],
        [entry(devices=2)],
        [entry(devices=[0, "1"])],
        [entry(devices=[1], rename="slow"), entry(replicas=8, rename="fast")],
    ],
)
def test_what_can_be_had_is_not_mentioned(entries: list[dict[str, Any]]) -> None:
    assert warnings(PAIR, *entries) == []


def test_a_gpu_that_is_cut_into_nothing() -> None:
    assert warnings(CUT, strategy="mixed") == ["device 1 has no MIG devices configured: it is not advertised"]
    assert warnings(CUT) == []
    assert warnings(CUT, entry(name="mig-1g.18gb", devices=["0:1"]), strategy="mixed")[1:] == []
