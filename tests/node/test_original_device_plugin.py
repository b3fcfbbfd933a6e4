"""The published unit tests of NVIDIA's device plugin (NVIDIA/k8s-device-plugin at 1b826acc6), case by case.

Read there, written anew: names are the original's, `Test…/case`. Every name of `HOLD` is a test here; `DIFFER` and
`NOT_APPLICABLE` have the reason. `test_originals` compares the counts with the guide.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.node.machines import machine
from tests.sharing.gpus import board, gpu, inventory

from windlass.model.errors import InputError
from windlass.node.health_rules import health_rules_from_environment
from windlass.node.host_root import HostRoot
from windlass.node.plugin.allocate import Allocator
from windlass.node.plugin.preferred_allocation import DeviceChooser
from windlass.node.plugin.rpc import FailedCall
from windlass.node.protos import deviceplugin_pb2 as dp
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.inventory import Inventory
from windlass.sharing.plugin_config import resolve_config
from windlass.sharing.plugin_fields import INFINITE
from windlass.sharing.resource_names import NamePattern

GPU = "nvidia.com/gpu"
UUID = "4cf8db2d-06c0-7d70-1a51-e59b25b2c16c"
VENDOR = "k8s.device-plugin.nvidia.com"

PATTERNS = {
    f"TestResourcePatternMatches/{name}": (pattern, text, matches)
    for name, pattern, text, matches in (
        ("exact match", "1g.24gb", "1g.24gb", True),
        ("no match on different string", "1g.24gb", "2g.48gb", False),
        ("does not substring match with suffix", "1g.24gb", "1g.24gb-me", False),
        ("does not substring match with plus suffix", "1g.24gb", "1g.24gb+me.all", False),
        ("does not substring match with prefix", "1g.24gb", "x1g.24gb", False),
        ("dash-me suffix matches its own pattern", "1g.24gb-me", "1g.24gb-me", True),
        ("plus-me.all suffix matches its own pattern", "1g.24gb+me.all", "1g.24gb+me.all", True),
        ("wildcard matches everything", "*", "1g.24gb-me", True),
        ("wildcard prefix match", "1g.*", "1g.24gb", True),
        ("wildcard prefix does not match different prefix", "1g.*", "2g.48gb", False),
        ("gfx suffix matches its own pattern", "1g.24gb+gfx", "1g.24gb+gfx", True),
        ("base pattern does not match +gfx suffix", "1g.24gb", "1g.24gb+gfx", False),
        ("gfx pattern does not match base", "1g.24gb+gfx", "1g.24gb", False),
        ("gfx pattern does not match -me suffix", "1g.24gb+gfx", "1g.24gb-me", False),
        ("2g gfx suffix matches its own pattern", "2g.48gb+gfx", "2g.48gb+gfx", True),
        ("2g base does not match +gfx suffix", "2g.48gb", "2g.48gb+gfx", False),
        ("wildcard suffix match", "*gb", "1g.24gb", True),
        ("wildcard suffix does not match -me suffix", "*gb", "1g.24gb-me", False),
    )
}


@pytest.mark.parametrize(("pattern", "text", "matches"), PATTERNS.values(), ids=PATTERNS)
def test_patterns(pattern: str, text: str, matches: bool) -> None:
    assert NamePattern(pattern, "gpu").matches(text) is matches


REFERENCES = {
    f"TestReplicatedDeviceRef/test case {number}": reference
    for number, reference in enumerate(
        ("0", "0:0", f"GPU-{UUID}", "MIG-3eb87630-93d5-b2b6-b8ff-9b359caf4ee2", f"MIG-GPU-{UUID}/10/0")
    )
}
DEVICES: dict[str, tuple[Any, Any]] = {
    f"TestUnmarshalReplicatedDevices/test case {number}": case
    for number, case in enumerate(
        (
            *(("not-all", None), (-2, None), (2.0, None), ([-1], None), (["-1"], None), (["invalid-UUID"], None)),
            *((["GPU-UUID"], None), (["MIG-UUID"], None), ([f"MIG-GPU-{UUID}"], None)),
            *(("all", "all"), (2, 2), ([0], ("0",)), (["0"], ("0",)), (["0:0"], ("0:0",))),
            *(([f"GPU-{UUID}"], (f"GPU-{UUID}",)), ([f"MIG-{UUID}"], (f"MIG-{UUID}",))),
            ([f"MIG-GPU-{UUID}/0/0"], (f"MIG-GPU-{UUID}/0/0",)),
            ([0, "0:0", f"GPU-{UUID}"], ("0", "0:0", f"GPU-{UUID}")),
            (["0", "0:0", f"GPU-{UUID}"], ("0", "0:0", f"GPU-{UUID}")),
        ),
        start=1,
    )
}
"""What is written, and what it means; None for a refusal."""


def entry_of(**fields: Any) -> Any:
    """The only entry of a config with these fields, as the original keeps them."""
    config = resolve_config({"sharing": {"timeSlicing": {"resources": [fields]}}}, honor_renames=True)
    assert config.sharing is not None
    (entry,) = config.sharing.resources
    return entry


@pytest.mark.parametrize("reference", REFERENCES.values(), ids=REFERENCES)
def test_references_to_devices(reference: str) -> None:
    assert entry_of(name="gpu", replicas=2, devices=[reference]).devices == (reference,)


@pytest.mark.parametrize(("written", "meant"), DEVICES.values(), ids=DEVICES)
def test_devices_of_an_entry(written: Any, meant: Any) -> None:
    if meant is None:
        with pytest.raises(InputError, match="devices"):
            entry_of(name="gpu", replicas=2, devices=written)
    else:
        assert entry_of(name="gpu", replicas=2, devices=written).devices == (None if meant == "all" else meant)


ENTRIES: dict[str, tuple[dict[str, Any], tuple[str, str] | None]] = {
    f"TestUnmarshalReplicatedResource/test case {number}": case
    for number, case in enumerate(
        (
            ({}, None),
            ({"name": "valid"}, None),
            ({"name": "valid", "devices": "all"}, None),
            ({"name": "valid", "devices": "all", "rename": "valid-shared"}, None),
            ({"name": "valid", "devices": "all", "replicas": 2}, ("nvidia.com/valid", "")),
            (
                {"name": "valid", "devices": "all", "replicas": 2, "rename": "valid-shared"},
                ("nvidia.com/valid", "nvidia.com/valid-shared"),
            ),
            ({"name": "valid", "replicas": -1}, None),
            ({"name": "valid", "replicas": 0}, None),
            ({"name": "valid", "replicas": 2}, ("nvidia.com/valid", "")),
            (
                {"name": "valid", "replicas": 2, "rename": "valid-shared"},
                ("nvidia.com/valid", "nvidia.com/valid-shared"),
            ),
            ({"name": "$invalid$", "replicas": 2, "rename": "valid-shared"}, None),
            ({"name": "valid", "replicas": 2, "rename": "$invalid$"}, None),
        ),
        start=1,
    )
}


@pytest.mark.parametrize(("fields", "names"), ENTRIES.values(), ids=ENTRIES)
def test_entries(fields: dict[str, Any], names: tuple[str, str] | None) -> None:
    if names is None:
        with pytest.raises(InputError, match=r"resources\[0\]"):
            entry_of(**fields)
    else:
        entry = entry_of(**fields)
        assert (entry.name, entry.rename, entry.devices, entry.replicas) == (*names, None, 2)


SECTIONS: dict[str, tuple[dict[str, Any], int]] = {
    f"TestUnmarshalReplicatedResources/test case {number}": case
    for number, case in enumerate(
        (
            ({}, 0),
            ({"resources": []}, 0),
            ({"resources": [{"name": "valid", "replicas": 2}]}, 1),
            ({"resources": [{"name": "valid1", "replicas": 2}, {"name": "valid2", "replicas": 2}]}, 2),
            ({"resources": [{"name": "$invalid$", "replicas": 2}]}, 0),
        ),
        start=1,
    )
}


@pytest.mark.parametrize(("section", "count"), SECTIONS.values(), ids=SECTIONS)
def test_sections_of_sharing(section: dict[str, Any], count: int) -> None:
    if not count:
        with pytest.raises(InputError, match="resources"):
            resolve_config({"sharing": {"timeSlicing": section}})
        return
    config = resolve_config({"sharing": {"timeSlicing": section}})
    assert config.sharing is not None
    assert len(config.sharing.resources) == count


FLAGS: dict[str, tuple[dict[str, Any], str, Any]] = {
    f"TestUnmarshalFlags/test case {number}": case
    for number, case in enumerate(
        (
            ({}, "sleep_interval", 60.0),
            ({"gfd": {}}, "sleep_interval", 60.0),
            ({"gfd": {"sleepInterval": 0}}, "sleep_interval", 0.0),
            ({"gfd": {"sleepInterval": "0s"}}, "sleep_interval", 0.0),
            ({"gfd": {"sleepInterval": 5}}, "sleep_interval", 5e-9),
            ({"gfd": {"sleepInterval": "5s"}}, "sleep_interval", 5.0),
            ({"gfd": {"sleepInterval": "infinite"}}, "sleep_interval", INFINITE),
            ({"plugin": {"deviceListStrategy": "envvar"}}, "device_list_strategy", ("envvar",)),
            (
                {"plugin": {"deviceListStrategy": ["envvar", "cdi-annotations"]}},
                "device_list_strategy",
                ("envvar", "cdi-annotations"),
            ),
        ),
        start=1,
    )
}
CHANNELS: dict[str, tuple[Any, tuple[int, ...] | None]] = {
    "TestImexUnmarshal/empty json": ({}, ()),
    "TestImexUnmarshal/null channel ID is valid": ({"channelIDs": None}, ()),
    "TestImexUnmarshal/empty channel ID is valid": ({"channelIDs": []}, ()),
    "TestImexUnmarshal/single 0 channel ID is valid": ({"channelIDs": [0]}, (0,)),
    "TestImexUnmarshal/single 0 channel ID as int is valid": ({"channelIDs": [0]}, (0,)),
    "TestImexUnmarshal/invalid cases": ({"channelIDs": [2]}, None),
}
MPS_DEFAULTS: dict[str, tuple[dict[str, Any], bool]] = {
    "TestNewConfigDefaultsMPSFailRequestsGreaterThanOne": ({}, True),
    "TestNewConfigHonorsExplicitMPSFailRequestsGreaterThanOneFalse": ({"failRequestsGreaterThanOne": False}, False),
}


@pytest.mark.parametrize(("flags", "name", "value"), FLAGS.values(), ids=FLAGS)
def test_flags(flags: dict[str, Any], name: str, value: Any) -> None:
    assert getattr(resolve_config({"flags": flags}), name) == value


@pytest.mark.parametrize(("section", "channels"), CHANNELS.values(), ids=CHANNELS)
def test_imex_channels(section: Any, channels: tuple[int, ...] | None) -> None:
    if channels is None:
        with pytest.raises(InputError, match=r"imex\.channelIDs"):
            resolve_config({"imex": section})
    else:
        assert resolve_config({"imex": section}).imex_channel_ids == channels


def mps(replicas: int = 2, **fields: Any) -> dict[str, Any]:
    resources = [{"name": GPU, "replicas": replicas}]
    return {"flags": {"mpsRoot": "/run/mps"}, "sharing": {"mps": {"resources": resources, **fields}}}


def slices(replicas: int = 2, **fields: Any) -> dict[str, Any]:
    return {"sharing": {"timeSlicing": {"resources": [{"name": GPU, "replicas": replicas}], **fields}}}


@pytest.mark.parametrize(("fields", "refuses"), MPS_DEFAULTS.values(), ids=MPS_DEFAULTS)
def test_mps_refuses_more_than_one_unless_told_otherwise(fields: dict[str, Any], refuses: bool) -> None:
    config = resolve_config(mps(**fields))
    assert config.sharing is not None
    assert config.sharing.fail_requests_greater_than_one is refuses


CLIENTS = {
    "TestDevice/no-leading v supported": ((7, 5), 2, True),
    "TestDevice/pre-volta clients": ((7, 0), 2, True),
    "TestDevice/post-volta clients": ((9, 0), 2, True),
    "TestDevice/pre-volta clients exceeded": ((7, 0), 29, False),
    "TestDevice/post-volta clients exceeded": ((9, 0), 49, False),
    "TestDevice/pre-volta clients max": ((7, 0), 16, True),
    "TestDevice/post-volta clients max": ((9, 0), 48, True),
}


@pytest.mark.parametrize(("compute", "replicas", "fits"), CLIENTS.values(), ids=CLIENTS)
def test_clients_of_mps(compute: tuple[int, int], replicas: int, fits: bool) -> None:
    found, config = inventory(gpu("T4", compute=compute)), resolve_config(mps(replicas))
    if fits:
        (resource,) = advertised_resources(found, config)
        assert len(resource.devices) == replicas
    else:
        with pytest.raises(InputError, match="MPS clients"):
            advertised_resources(found, config)


class Requests:
    """A machine with two GPUs and one resource on it."""

    def __init__(self, folder: Path, file: dict[str, Any] | None = None) -> None:
        backend = machine(count=2, folder=folder)
        for name in ("nvidia-fs0", "infiniband/uverbs0", "nvidia-caps-imex-channels/channel0"):
            (folder / "dev" / name).parent.mkdir(exist_ok=True)
            (folder / "dev" / name).write_text("char 240:0")
        config = resolve_config(file)
        (resource,) = advertised_resources(backend.inventory(), config)
        self.allocator = Allocator(resource, config, HostRoot(folder), lambda: "uuid")
        self.uuids = [found.uuid for found in backend.inventory().gpus]

    def allocate(self, *ids: str) -> dp.ContainerAllocateResponse:
        return self.allocator.allocate_container(list(ids))


ALLOCATE = {"TestAllocate/single device": (0,), "TestAllocate/duplicate device IDs": (0, 1, 0)}


@pytest.mark.parametrize("which", ALLOCATE.values(), ids=ALLOCATE)
def test_each_device_is_named_once(tmp_path: Path, which: tuple[int, ...]) -> None:
    scene = Requests(tmp_path)
    answer = scene.allocate(*(scene.uuids[index] for index in which))
    assert dict(answer.envs) == {"NVIDIA_VISIBLE_DEVICES": ",".join(scene.uuids[: max(which) + 1])}


CDI: dict[str, list[Any]] = {
    f"TestCDIAllocateResponse/{name}": case
    for name, *case in (
        ("empty device list has empty response", 0, "cdi.k8s.io/", {}, ""),
        ("single device is added to annotations", 1, "cdi.k8s.io/", {}, "gpu=0"),
        ("single device is added to annotations with custom prefix", 1, "custom.cdi.k8s.io/", {}, "gpu=0"),
        ("multiple devices are added to annotations", 2, "cdi.k8s.io/", {}, "gpu=0,gpu=1"),
        ("multiple devices are added to annotations with custom prefix", 2, "custom.cdi.k8s.io/", {}, "gpu=0,gpu=1"),
        ("mofed devices are selected if configured", 0, "cdi.k8s.io/", {"mofedEnabled": True}, "mofed=all"),
        ("gds devices are selected if configured", 0, "cdi.k8s.io/", {"gdsEnabled": True}, "gds=all"),
        (
            "gds and mofed devices are included with device ids",
            1,
            "cdi.k8s.io/",
            {"gdsEnabled": True, "mofedEnabled": True},
            "gpu=0,gds=all,mofed=all",
        ),
        ("imex channel is included with devices", 0, "cdi.k8s.io/", {"imex": True}, "imex-channel=0"),
    )
}


@pytest.mark.parametrize(("count", "prefix", "more", "names"), CDI.values(), ids=CDI)
def test_cdi_names_in_annotations(tmp_path: Path, count: int, prefix: str, more: dict[str, Any], names: str) -> None:
    plugin = {"deviceListStrategy": "cdi-annotations", "cdiAnnotationPrefix": prefix, "deviceIDStrategy": "index"}
    flags = {name: value for name, value in more.items() if name != "imex"}
    scene = Requests(
        tmp_path, {"flags": {"plugin": plugin, **flags}, "imex": {"channelIDs": [0]} if "imex" in more else {}}
    )
    annotations = dict(scene.allocate(*scene.uuids[:count]).annotations)
    qualified = ",".join(f"{VENDOR}/{name}" for name in names.split(",") if name)
    assert annotations == ({f"{prefix}nvidia-device-plugin_uuid": qualified} if names else {})


VALIDATE: dict[str, list[Any]] = {
    f"TestValidateRequest/{name}": case
    for name, *case in (
        ("valid device IDs -- no sharing", None, ("1",), True),
        ("invalid device IDs -- no sharing", None, ("1", "2"), False),
        ("timeslicing with single device", slices(), ("0::1",), True),
        ("timeslicing with two devices", slices(), ("0::1", "1::0"), True),
        (
            "timeslicing with two devices -- failRequestsGreaterThanOne",
            slices(failRequestsGreaterThanOne=True),
            ("0::1", "1::0"),
            False,
        ),
        ("MPS with single device", mps(), ("0::1",), True),
        ("MPS with two devices", mps(failRequestsGreaterThanOne=False), ("0::1", "1::0"), True),
        (
            "MPS with two devices -- failRequestsGreaterThanOne",
            mps(failRequestsGreaterThanOne=True),
            ("0::1", "1::0"),
            False,
        ),
    )
}


@pytest.mark.parametrize(("file", "ids", "valid"), VALIDATE.values(), ids=VALIDATE)
def test_requests_are_checked(tmp_path: Path, file: dict[str, Any] | None, ids: tuple[str, ...], valid: bool) -> None:
    scene = Requests(tmp_path, file)
    uuids = [*scene.uuids, "GPU-nobodys"]
    named = [uuids[int(text[0])] + text[1:] for text in ids]
    if valid:
        assert scene.allocate(*named).envs
    else:
        with pytest.raises(FailedCall, match="invalid request"):
            scene.allocate(*named)


def chooser(found: Inventory, replicas: int, policy: str = "") -> DeviceChooser:
    flags = {"plugin": {"sharedDevicesAllocationPolicy": policy}} if policy else {}
    config = resolve_config({"flags": flags, **slices(replicas)})
    (resource,) = advertised_resources(found, config)
    return DeviceChooser(resource, found, config.shared_devices_allocation_policy)


def counts_by_gpu(gpus: int, replicas: int, size: int, policy: str, taken: tuple[str, ...] = ()) -> list[int]:
    """How many shares of each GPU are chosen, largest first."""
    found = board(gpus, model="H100", numa=1)
    free = [f"{at}::{share}" for at in range(gpus) for share in range(replicas)]
    names = [found.gpus[int(name[0])].uuid + name[1:] for name in free if name not in taken]
    chosen = chooser(found, replicas, policy).choose(names, [], size)
    counts = [sum(name.startswith(each.uuid) for name in chosen) for each in found.gpus]
    return sorted(counts, reverse=True)


SHARES: dict[str, list[Any]] = {
    name: case
    for name, *case in (
        ("TestDistributedAlloc/2 GPUs, 4 replicas each, allocate 2", 2, 4, 2, "distributed", [1, 1]),
        ("TestDistributedAlloc/3 GPUs, 2 replicas each, allocate 3", 3, 2, 3, "distributed", [1, 1, 1]),
        ("TestDistributedAlloc/2 GPUs, 4 replicas each, allocate 4", 2, 4, 4, "distributed", [2, 2]),
        ("TestDistributedAlloc/allocate 1 from single GPU", 1, 4, 1, "distributed", [1]),
        ("TestDistributedAlloc/partial availability", 2, 4, 2, "distributed", [1, 1]),
        ("TestPackedAlloc/2 GPUs, 4 replicas each, allocate 2", 2, 4, 2, "packed", [2, 0]),
        ("TestPackedAlloc/3 GPUs, 2 replicas each, allocate 3", 3, 2, 3, "packed", [2, 1, 0]),
        ("TestPackedAlloc/2 GPUs, 4 replicas each, allocate 4", 2, 4, 4, "packed", [4, 0]),
        ("TestPackedAlloc/2 GPUs, 4 replicas each, allocate 5", 2, 4, 5, "packed", [4, 1]),
        ("TestPackedAlloc/allocate 1 from single GPU", 1, 4, 1, "packed", [1]),
        ("TestDistributedAllocIsDefault", 3, 4, 3, "", [1, 1, 1]),
        ("TestPackedVsDistributedContrast", 2, 4, 4, "packed", [4, 0]),
        ("TestComparatorForPolicy/empty policy falls back to distributed", 2, 4, 2, "", [1, 1]),
    )
}
TAKEN: dict[str, list[Any]] = {
    name: case
    for name, *case in (
        (
            "TestDistributedAlloc_PartiallyAllocated_DistributesAcrossDistinctGPUs",
            ("1::0",),
            2,
            "distributed",
            [1, 1],
        ),
        (
            "TestComparatorForPolicy/distributed prefers GPU with fewer allocated replicas",
            ("1::0",),
            1,
            "distributed",
            [1, 0],
        ),
        ("TestComparatorForPolicy/packed prefers GPU with more allocated replicas", ("1::0",), 1, "packed", [1, 0]),
    )
}


@pytest.mark.parametrize(("gpus", "replicas", "size", "policy", "counts"), SHARES.values(), ids=SHARES)
def test_shares_are_chosen(gpus: int, replicas: int, size: int, policy: str, counts: list[int]) -> None:
    assert counts_by_gpu(gpus, replicas, size, policy) == counts


@pytest.mark.parametrize(("taken", "size", "policy", "counts"), TAKEN.values(), ids=TAKEN)
def test_shares_that_others_have_count(taken: tuple[str, ...], size: int, policy: str, counts: list[int]) -> None:
    assert counts_by_gpu(2, 2, size, policy, taken) == counts
    if size == 1:  # which of the two it is
        found = board(2, model="H100", numa=1)
        names = [found.gpus[int(name[0])].uuid + name[1:] for name in ("0::0", "0::1", "1::1")]
        (chosen,) = chooser(found, 2, policy).choose(names, [], 1)
        assert chosen.startswith(found.gpus[policy == "packed"].uuid)


WHOLE = {
    f"TestFullGPUNodeIgnoresAllocationPolicy/{name}": policy
    for name, policy in (("AlignedAllocation is selected regardless of sharedDevicesAllocationPolicy", "packed"),)
}


@pytest.mark.parametrize("policy", WHOLE.values(), ids=WHOLE)
def test_whole_gpus_go_by_their_wiring(policy: str) -> None:
    found = board(4, model="H100", islands=2, numa=1)
    (resource,) = advertised_resources(found, resolve_config())
    names = [each.uuid for each in found.gpus]
    chosen = [DeviceChooser(resource, found, each).choose(names, [], 2) for each in (policy, "distributed")]
    assert chosen[0] == chosen[1]


XIDS: dict[str, tuple[str, set[int]]] = {
    f"TestNewHealthCheckXIDs/test case {number}": case
    for number, case in enumerate(
        (
            *(("", set()), (",", set()), ("not-an-int", set()), ("68", {68}), ("-68", set()), ("68  ", {68})),
            *(("68,", {68}), (",68", {68}), ("68,67", {67, 68}), ("68,not-an-int,67", {67, 68})),
        )
    )
}
SKIPPED = (13, 31, 43, 45, 68)
"""Application errors, which the original skips by default; 109 it skips too, see `DIFFER`."""
SWITCHES: dict[str, tuple[str, str, dict[int, bool]]] = {
    "TestGetDisabledHealthCheckXids/disabled is all": ("all", "", dict.fromkeys((*SKIPPED, 109, 555), False)),
    "TestGetDisabledHealthCheckXids/disabled is xids": ("xids", "", dict.fromkeys((*SKIPPED, 109, 555), False)),
    "TestGetDisabledHealthCheckXids/enabled is all": ("", "all", dict.fromkeys((*SKIPPED, 109, 555), True)),
}


@pytest.mark.parametrize(("text", "xids"), XIDS.values(), ids=XIDS)
def test_xids_that_are_switched_off(text: str, xids: set[int]) -> None:
    assert health_rules_from_environment({"DP_DISABLE_HEALTHCHECKS": text}).ignored_xids == xids


@pytest.mark.parametrize(("disabled", "enabled", "fatal"), SWITCHES.values(), ids=SWITCHES)
def test_which_xids_count(disabled: str, enabled: str, fatal: dict[int, bool]) -> None:
    variables = {"DP_DISABLE_HEALTHCHECKS": disabled, "DP_ENABLE_HEALTHCHECKS": enabled}
    rules = health_rules_from_environment(variables)
    assert {code: rules.is_fatal(code) for code in fatal} == fatal


def test_but_a_context_switch_timeout_needs_a_reset() -> None:
    """The two cases of `DIFFER` about Xids: all but 109 is as there."""
    for variables, more in (
        ({}, {}),
        ({"DP_DISABLE_HEALTHCHECKS": "11", "DP_ENABLE_HEALTHCHECKS": "11"}, {11: True, 555: True}),
    ):
        rules = health_rules_from_environment(variables)
        expected = {**dict.fromkeys(SKIPPED, False), 109: True, **more}
        assert {code: rules.is_fatal(code) for code in expected} == expected


def test_more_shares_than_there_are_is_what_there_is() -> None:
    """The two cases of `DIFFER` about too few devices."""
    assert [counts_by_gpu(1, 2, 5, policy) for policy in ("distributed", "packed")] == [[2], [2]]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="sharedDevicesAllocationPolicy"):
        resolve_config({"flags": {"plugin": {"sharedDevicesAllocationPolicy": "unknown"}}})


HOLD = (
    *(*PATTERNS, *REFERENCES, *DEVICES, *ENTRIES, *SECTIONS, *FLAGS, *CHANNELS, *MPS_DEFAULTS, *CLIENTS),
    *(*ALLOCATE, *CDI, *VALIDATE, *SHARES, *TAKEN, *WHOLE, *XIDS, *SWITCHES),
)
_CATALOGUE = "Xid 109 asks for a reset of the GPU in NVIDIA's own catalogue, so it makes a GPU unhealthy here"
_TOO_FEW = (
    "the answer is what there is: the kubelet asks for no more devices than are free, and checks the answer itself"
)
DIFFER = {
    "TestGetDisabledHealthCheckXids/empty envvars are default disabled": _CATALOGUE,
    "TestGetDisabledHealthCheckXids/enabled overrides disabled": _CATALOGUE,
    "TestDistributedAlloc/not enough devices": _TOO_FEW,
    "TestPackedAlloc/not enough devices": _TOO_FEW,
    "TestComparatorForPolicy/unknown policy falls back to distributed": "an unknown policy is refused with its field",
}
_EMPTY = "an empty JSON text: the config is YAML, where nothing at all is an empty section"
_WRITTEN = "nothing writes a config"
_UUIDS = "instances are known by NVML's numbers, never by the parts of a UUID"
_PATH = "which code path is taken, not what comes of it"
NOT_APPLICABLE = {
    **{
        f"{name}/test case 0": _EMPTY
        for name in (
            *("TestUnmarshalReplicatedDevices", "TestUnmarshalReplicatedResource"),
            *("TestUnmarshalReplicatedResources", "TestUnmarshalFlags"),
        )
    },
    **{f"TestMarshalReplicatedDevices/test case {number}": _WRITTEN for number in range(4)},
    **{f"TestMarshalFlags/test case {number}": _WRITTEN for number in range(4)},
    "TestDevice/leading v ignored": "compute capability is two numbers",
    **{f"TestParseMigDeviceUUID/case {number}": _UUIDS for number in range(6)},
    **{f"TestGetMigDeviceParts/case {number}": _UUIDS for number in range(4)},
    **{f"TestComparatorsOrderSolelyByAllocated/{policy}": _PATH for policy in ("distributed", "packed")},
    "TestFullGPUNodeIgnoresAllocationPolicy/MIG devices do not take aligned allocation path": _PATH,
    "TestFullGPUNodeIgnoresAllocationPolicy/replicated devices do not take aligned allocation path": _PATH,
    **{f"TestDeviceMapInsert/case {number}": "a table inside the original" for number in range(4)},
    "TestWslDeviceMapHasSingleAllDevice": "WSL is not supported",
    **{f"TestCSVFilesForRoot/case {number}": "Tegra is not supported" for number in range(2)},
}
