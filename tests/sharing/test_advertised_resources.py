"""What a node advertises: names, counts and refusals under every strategy."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.sharing.gpus import gpu, inventory

from windlass.model.errors import InputError
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import resolve_config

CUT = [("1g.18gb", at) for at in range(7)]
MIXED = [("1g.18gb", 0), ("1g.18gb+me", 1), ("2g.35gb", 2), ("3g.71gb", 4)]


def counts(found: Inventory, file: Any = None, **settings: Any) -> dict[str, int]:
    config = resolve_config(file, **settings)
    return {resource.name: len(resource.devices) for resource in advertised_resources(found, config)}


def sliced(replicas: int = 4, name: str = "nvidia.com/gpu", **fields: Any) -> dict[str, Any]:
    return {"sharing": {"timeSlicing": {"resources": [{"name": name, "replicas": replicas}], **fields}}}


class TestMigStrategies:
    def test_none_counts_gpus_whether_cut_or_not(self) -> None:
        assert counts(inventory(gpu(), gpu(index=1, cuts=CUT))) == {"nvidia.com/gpu": 2}

    def test_single_counts_instances_as_gpus(self) -> None:
        found = inventory(gpu(cuts=CUT), gpu(index=1, cuts=CUT))
        assert counts(found, {"flags": {"migStrategy": "single"}}) == {"nvidia.com/gpu": 14}

    def test_single_without_mig_counts_gpus(self) -> None:
        assert counts(inventory(gpu()), {"flags": {"migStrategy": "single"}}) == {"nvidia.com/gpu": 1}

    def test_mixed_names_profiles(self) -> None:
        found = inventory(gpu(cuts=MIXED), gpu(index=1))
        assert counts(found, {"flags": {"migStrategy": "mixed"}}) == {
            "nvidia.com/gpu": 1,
            "nvidia.com/mig-1g.18gb": 1,
            "nvidia.com/mig-1g.18gb.me": 1,
            "nvidia.com/mig-2g.35gb": 1,
            "nvidia.com/mig-3g.71gb": 1,
        }

    @pytest.mark.parametrize(
        ("found", "words"),
        [
            (
                inventory(gpu(cuts=CUT), gpu(index=1)),
                "all devices on the node must be configured with the same migEnabled value",
            ),
            (inventory(gpu(cuts=CUT), gpu(index=1, cuts=[])), "device 1 has no MIG devices configured"),
            (inventory(gpu(cuts=MIXED)), "more than one MIG device type present on node: 1g.18gb, "),
        ],
    )
    def test_single_refuses_what_it_can_not_name(self, found: Inventory, words: str) -> None:
        with pytest.raises(InputError, match=words) as refused:
            counts(found, {"flags": {"migStrategy": "single"}})
        assert refused.value.path == "flags.migStrategy"


class TestSharing:
    def test_time_slicing_multiplies(self) -> None:
        assert counts(inventory(gpu(), gpu(index=1)), sliced()) == {"nvidia.com/gpu": 8}

    def test_mig_and_time_slicing_multiply(self) -> None:
        file = {"flags": {"migStrategy": "mixed"}, **sliced(4, "nvidia.com/mig-1g.18gb")}
        assert counts(inventory(gpu(cuts=CUT)), file) == {"nvidia.com/mig-1g.18gb": 28}

    def test_replicas_have_ids_of_their_own(self) -> None:
        (resource,) = advertised_resources(inventory(gpu()), resolve_config(sliced(2)))
        uuid = gpu().uuid
        assert [device.id for device in resource.devices] == [f"{uuid}::0", f"{uuid}::1"]
        assert {device.uuid for device in resource.devices} == {uuid}

    def test_renamed_by_default(self) -> None:
        assert counts(inventory(gpu()), sliced(3, renameByDefault=True)) == {"nvidia.com/gpu.shared": 3}

    def test_one_of_two_gpus_can_be_shared(self) -> None:
        file = sliced()
        file["sharing"]["timeSlicing"]["resources"][0] |= {"rename": "gpu.shared", "devices": [1]}
        found = inventory(gpu(), gpu(index=1))
        assert counts(found, file, honor_renames=True) == {"nvidia.com/gpu": 1, "nvidia.com/gpu.shared": 4}

    def test_shared_and_whole_under_one_name_are_refused(self) -> None:
        file = sliced()
        file["sharing"]["timeSlicing"]["resources"][0] |= {"devices": [1]}
        with pytest.raises(InputError, match="both shared and unshared"):
            counts(inventory(gpu(), gpu(index=1)), file, honor_renames=True)

    def test_mps_on_a_cut_gpu_is_refused(self) -> None:
        entry = {"name": "nvidia.com/gpu", "replicas": 2}
        file = {"flags": {"mpsRoot": "/m"}, "sharing": {"mps": {"resources": [entry]}}}
        with pytest.raises(InputError, match="not supported for MIG"):
            counts(inventory(gpu(cuts=CUT)), file)

    @pytest.mark.parametrize(
        ("compute", "most"),
        [((6, 0), 16), ((7, 0), 16), ((7, 5), 48), ((8, 0), 48), ((9, 0), 48), ((10, 0), 48)],
    )
    def test_as_many_mps_clients_as_the_gpu_serves(self, compute: tuple[int, int], most: int) -> None:
        found = inventory(gpu("T4", compute=compute))
        for replicas in (2, most, most + 1):
            entry = {"name": "nvidia.com/gpu", "replicas": replicas}
            file = {"flags": {"mpsRoot": "/m"}, "sharing": {"mps": {"resources": [entry]}}}
            if replicas <= most:
                assert counts(found, file) == {"nvidia.com/gpu": replicas}
                continue
            with pytest.raises(InputError, match=f"at most {most}"):
                counts(found, file)

    def test_profiles_that_differ_in_their_end_are_resources_of_their_own(self) -> None:
        names = ["1g.24gb", "1g.24gb-me", "1g.24gb+me", "1g.24gb+me.all", "1g.24gb+gfx", "2g.48gb+gfx"]
        plain = gpu("H200", cuts=[("1g.18gb", at) for at in range(6)])
        parts = tuple(
            msgspec.structs.replace(each, profile=name) for each, name in zip(plain.instances, names, strict=True)
        )
        found = inventory(gpu("H200", cuts=[], instances=parts))
        assert counts(found, {"flags": {"migStrategy": "mixed"}}) == {
            "nvidia.com/mig-1g.24gb": 1,
            "nvidia.com/mig-1g.24gb-me": 1,
            "nvidia.com/mig-1g.24gb.gfx": 1,
            "nvidia.com/mig-1g.24gb.me": 1,
            "nvidia.com/mig-1g.24gb.me.all": 1,
            "nvidia.com/mig-2g.48gb.gfx": 1,
        }
