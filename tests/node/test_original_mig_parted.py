"""The published unit tests of mig-parted (NVIDIA/mig-parted at bd7160f4), case by case.

Read there, written anew: names are the original's, `Test…/case`. Every name of `HOLD` is a test here; `DIFFER` and
`NOT_APPLICABLE` have the reason. `test_originals` compares the counts with the guide.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.node.machines import machine
from tests.sharing.gpus import gpu, inventory

from windlass.model.errors import InputError
from windlass.node.agent_parts import DEPLOY_LABELS, is_disabled_by_label
from windlass.node.backend.protocol import DeviceError, MigModeChange
from windlass.node.mig_apply import apply_plans
from windlass.sharing.inventory import Gpu
from windlass.sharing.mig_config import MigEntry, generated_configs, read_mig_configs
from windlass.sharing.mig_plan import plan_gpu

OFF = {"devices": "all", "mig-enabled": False}
FILES: dict[str, tuple[Any, bool]] = {
    f"TestSpec/{name}": case
    for name, case in (
        ("Empty", (None, True)),
        ("Well formed", ({"version": "v1", "mig-configs": {"all-disabled": [OFF]}}, True)),
        ("Only version field", ({"version": "v1"}, True)),
        ("Well formed - wrong version", ({"version": "v2", "mig-configs": {"all-disabled": [OFF]}}, False)),
        ("Only version field - wrong versiomn", ({"version": "v2"}, False)),
        ("Missing version field", ({"mig-configs": {"all-disabled": [OFF]}}, False)),
        ("Erroneous field", ({"bogus": "field", "version": "v1", "mig-configs": {"all-disabled": [OFF]}}, False)),
        ("Empty 'mig-configs'", ({"version": "v1", "mig-configs": {}}, False)),
    )
}
ON = {"devices": "all", "mig-enabled": True, "mig-devices": {"1g.5gb": 2}}
ENTRIES: dict[str, tuple[dict[str, Any], bool]] = {
    f"TestMigConfigSpec/{name}": case
    for name, case in (
        ("Well formed", (ON, True)),
        ("Missing 'devices'", ({"mig-enabled": True, "mig-devices": {"1g.5gb": 2}}, False)),
        ("Missing 'mig-enabled'", ({"devices": "all", "mig-devices": {"1g.5gb": 2}}, False)),
        ("Missing 'mig-devices', enabled: false", (OFF, True)),
        ("Missing 'mig-devices', enabled: true", ({"devices": "all", "mig-enabled": True}, False)),
        ("'mig-devices' formatted correctly", (ON, True)),
        ("'mig-devices' formatted incorrectly", ({**ON, "mig-devices": {"bogus": 2}}, False)),
        ("Erroneous field", ({**OFF, "bogus": "field"}, False)),
        ("'devices' string == all", (OFF, True)),
        ("'devices' string != all", ({**OFF, "devices": "bogus"}, False)),
        ("'devices' []int", ({**OFF, "devices": [0, 1, 2, 3]}, True)),
        ("'devices' not string for []int", ({**OFF, "devices": {}}, False)),
    )
}


@pytest.mark.parametrize(("raw", "valid"), FILES.values(), ids=FILES)
def test_files(raw: Any, valid: bool) -> None:
    if valid:
        read_mig_configs(raw)
    else:
        with pytest.raises(InputError):
            read_mig_configs(raw)


@pytest.mark.parametrize(("entry", "valid"), ENTRIES.values(), ids=ENTRIES)
def test_entries(entry: dict[str, Any], valid: bool) -> None:
    raw = {"version": "v1", "mig-configs": {"layout": [entry]}}
    if valid:
        assert len(read_mig_configs(raw)["layout"]) == 1
    else:
        with pytest.raises(InputError, match=r"mig-configs\.layout\[0\]"):
            read_mig_configs(raw)


H100 = gpu("H100", pci_id="0x233010DE", subsystem_id="0x16C010DE")
FILTERS: dict[str, tuple[Any, bool]] = {
    f"TestMigConfigSpecMatchesDeviceFilter/{name}": case
    for name, case in (
        ("empty filter matches all devices", ("", True)),
        ("primary-only filter matches subsystem-aware hardware", ("0x233010DE", True)),
        ("matching subsystem filter matches hardware", ("0x233010DE:0x16C010DE", True)),
        ("sibling subsystem filter does not match hardware", ("0x233010DE:0x16C110DE", False)),
        (
            "multiple filters stop at a matching subsystem entry",
            (["0x233010DE:0x16C110DE", "0x233010DE:0x16C010DE"], True),
        ),
    )
}
DEVICE_IDS: dict[str, tuple[str, str, str, bool]] = {
    f"TestDeviceIDMatches/{name}": case
    for name, case in (
        ("primary only filter matches same primary id", ("0x233010DE", "0x233010DE", "0x16C010DE", True)),
        ("subsystem filter matches exact hardware", ("0x233010DE:0x16C010DE", "0x233010DE", "0x16C010DE", True)),
        ("subsystem filter rejects sibling subsystem", ("0x233010DE:0x16C010DE", "0x233010DE", "0x16C110DE", False)),
        (
            "subsystem filter does not match hardware with unknown subsystem",
            ("0x233010DE:0x16C010DE", "0x233010DE", "", False),
        ),
        ("different primary id does not match", ("0x233010DE", "0x233110DE", "", False)),
    )
}


def layout_entry(filters: Any) -> MigEntry:
    raw = {"version": "v1", "mig-configs": {"layout": [{**OFF, "device-filter": filters}]}}
    (entry,) = read_mig_configs(raw)["layout"]
    return entry


@pytest.mark.parametrize(("filters", "matches"), FILTERS.values(), ids=FILTERS)
def test_filters(filters: Any, matches: bool) -> None:
    assert layout_entry(filters).matches(H100) is matches


@pytest.mark.parametrize(("filters", "chip", "board", "matches"), DEVICE_IDS.values(), ids=DEVICE_IDS)
def test_ids_of_chip_and_board(filters: str, chip: str, board: str, matches: bool) -> None:
    assert layout_entry(filters).matches(gpu("H100", pci_id=chip, subsystem_id=board)) is matches


MALFORMED = {
    "TestMigConfigSpecMatchesDeviceFilter/malformed filters": "0x233010DE:0x16C010DE:extra",
    "TestNewDeviceIDFromString/invalid primary": "bogus",
    "TestNewDeviceIDFromString/invalid subsystem": "0x233010DE:bogus",
    "TestNewDeviceIDFromString/too many separators": "0x233010DE:0x16C010DE:0x0",
}
WELL_FORMED = {
    "TestNewDeviceIDFromString/primary only": "0x233010DE",
    "TestNewDeviceIDFromString/with subsystem": "0x233010DE:0x16C010DE",
}


@pytest.mark.parametrize("text", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_filter_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="PCI ID"):
        layout_entry(text)


@pytest.mark.parametrize("text", WELL_FORMED.values(), ids=WELL_FORMED)
def test_a_filter_is_read(text: str) -> None:
    assert layout_entry(text).filters == (text.replace("0x", ""),)


POSSIBLE: dict[str, tuple[dict[str, int], bool]] = {
    f"TestValidConfiguration/{name}": case
    for name, case in (
        ("Empty config", ({}, True)),
        ("Nil config", ({}, True)),
        ("Single device (equal to max)", ({"1g.5gb": 7}, True)),
        ("Single device (greater than max)", ({"1g.5gb": 8}, False)),
        ("Single device (less than max)", ({"1g.5gb": 6}, True)),
        ("Mix of devices (all at max)", ({"1g.5gb": 3, "2g.10gb": 2}, True)),
        ("Mix of devices (one smaller than max)", ({"1g.5gb": 2, "2g.10gb": 2}, True)),
        ("Mix of devices (all smaller than max)", ({"1g.5gb": 2, "2g.10gb": 1}, True)),
        ("Mix of devices (one greater than max)", ({"1g.5gb": 4, "2g.10gb": 2}, False)),
    )
}
REFUSED: dict[str, dict[str, int]] = {
    "TestValidConfiguration/Invalid device type (with count > 0)": {"bogus": 1},
    "TestValidConfiguration/Invalid device type (with count == 0)": {"bogus": 0},
    "TestValidConfiguration/Single device (equal to 0)": {"1g.5gb": 0},
}


@pytest.mark.parametrize(("wanted", "valid"), POSSIBLE.values(), ids=POSSIBLE)
def test_what_fits_onto_an_a100(wanted: dict[str, int], valid: bool) -> None:
    plan = plan_gpu(gpu("A100-40", cuts=()), wanted, enabled=True)
    assert bool(plan.refusal) is not valid


@pytest.mark.parametrize("wanted", REFUSED.values(), ids=REFUSED)
def test_what_no_gpu_has_is_refused_by_the_file(wanted: dict[str, int]) -> None:
    with pytest.raises(InputError, match="mig-devices"):
        read_mig_configs({"version": "v1", "mig-configs": {"layout": [{**ON, "mig-devices": wanted}]}})


def generated(*gpus: Gpu) -> dict[str, dict[str, dict[str, int]]]:
    """Name → filter → instances."""
    configs = generated_configs(inventory(*gpus).gpus)
    return {name: {"".join(entry.filters): entry.wanted for entry in entries} for name, entries in configs.items()}


A100, A30 = gpu("A100-80", pci_id="0x20B510DE"), gpu("A30", 1, pci_id="0x20B710DE")
BALANCED_A100 = {"1g.10gb": 2, "2g.20gb": 1, "3g.40gb": 1}
BALANCED_A30 = {"1g.6gb": 2, "2g.12gb": 1}
A100_LAYOUTS = {"1g.10gb": 7, "1g.10gb+me": 1, "1g.20gb": 4, "2g.20gb": 3, "3g.40gb": 2, "4g.40gb": 1, "7g.80gb": 1}
A30_LAYOUTS = {"1g.6gb": 4, "1g.6gb+me": 1, "2g.12gb": 2, "2g.12gb+me": 1, "4g.24gb": 1}
LAYOUTS: dict[str, tuple[tuple[Gpu, ...], dict[str, tuple[dict[str, int], dict[str, int]]]]] = {
    "TestBuildAllBalancedConfig/7-slot GPU": ((A100,), {"20B510DE": (BALANCED_A100, {})}),
    "TestBuildAllBalancedConfig/4-slot GPU": ((A30,), {"20B710DE": (BALANCED_A30, {})}),
    "TestBuildAllBalancedConfig/heterogeneous GPUs": (
        (A100, A30),
        {"20B510DE": (BALANCED_A100, {}), "20B710DE": (BALANCED_A30, {})},
    ),
    "TestBuildMigConfigSpec/A100-80GB": ((A100,), {"20B510DE": (BALANCED_A100, A100_LAYOUTS)}),
    "TestBuildMigConfigSpec/A30-24GB (4-slot)": ((A30,), {"20B710DE": (BALANCED_A30, A30_LAYOUTS)}),
    "TestBuildMigConfigSpec/heterogeneous A100 + H100 (same profiles, grouped)": (
        (A100, gpu("H100", 1, pci_id="0x233110DE")),
        {"20B510DE": (BALANCED_A100, A100_LAYOUTS), "233110DE": (BALANCED_A100, A100_LAYOUTS)},
    ),
    "TestBuildMigConfigSpec/heterogeneous A100 + A30 (different profiles, separate entries)": (
        (A100, A30),
        {"20B510DE": (BALANCED_A100, A100_LAYOUTS), "20B710DE": (BALANCED_A30, A30_LAYOUTS)},
    ),
}


@pytest.mark.parametrize(("gpus", "expected"), LAYOUTS.values(), ids=LAYOUTS)
def test_layouts_for_the_gpus_at_hand(
    gpus: tuple[Gpu, ...], expected: dict[str, tuple[dict[str, int], dict[str, int]]]
) -> None:
    """Ours name the chip also where there is one model only, which matches the same GPUs."""
    found = generated(*gpus)
    assert found["all-disabled"] == {"": {}}
    assert found["all-enabled"] == {"": {}}
    assert found["all-balanced"] == {chip: balanced for chip, (balanced, _) in expected.items()}
    for chip, (_, layouts) in expected.items():
        for profile, count in layouts.items():
            assert found[f"all-{profile.replace('+', '.')}"][chip] == {profile: count}


NAMES = {
    "TestNormalizeProfileName/1g.10gb": ("A100-80", "all-1g.10gb"),
    "TestNormalizeProfileName/1g.10gb+me": ("A100-80", "all-1g.10gb.me"),
}


@pytest.mark.parametrize(("model", "name"), NAMES.values(), ids=NAMES)
def test_a_label_value_has_no_plus(model: str, name: str) -> None:
    assert name in generated(gpu(model))


PAUSED = {
    f"TestMaybeSetPaused/{value}": (value, value == "false")
    for value in ("false", "true", "paused-for-mig-change", "")
    if value != "paused-for-mig-change"
}
"""What a user disabled stays disabled; nothing else is paused, see `NOT_APPLICABLE`."""


@pytest.mark.parametrize(("value", "disabled"), PAUSED.values(), ids=PAUSED)
def test_what_a_user_disabled_stays_disabled(value: str, disabled: bool) -> None:
    assert is_disabled_by_label("plugin", {DEPLOY_LABELS["plugin"]: value}) is disabled


def test_layouts_are_set_read_and_cleared() -> None:
    """TestGetSetMigConfig, TestClearMigConfig, TestFetchRestore, TestSetMigConfigResolvesMigProfileOnTargetGPU."""
    backend = machine("A100-40", 2)
    for wanted in ({"1g.5gb": 7}, {"3g.20gb": 2}, {"1g.5gb": 2, "2g.10gb": 1, "3g.20gb": 1}, {}):
        for card in backend.inventory().gpus:
            apply_plans(backend, [plan_gpu(card, wanted, enabled=True)])
        for card in backend.inventory().gpus:
            counted = {name: [each.profile for each in card.instances].count(name) for name in wanted}
            assert counted == wanted
            assert len(card.instances) == sum(wanted.values())


def test_modes_of_mig() -> None:
    """TestNvmlIsMigCapable, TestNvmlEnableDisableMig."""
    backend = machine("H200", 1)
    (card,) = backend.inventory().gpus
    assert card.mig_capable
    for enabled in (True, False):
        assert backend.set_mig_mode(card.uuid, enabled) is MigModeChange.DONE
        assert backend.inventory().gpus[0].mig_enabled is enabled
    (old,) = machine("T4", 1).inventory().gpus
    assert not old.mig_capable
    with pytest.raises(DeviceError, match="Not Supported"):
        machine("T4", 1).set_mig_mode(old.uuid, True)


WALKS = (
    *("TestGetSetMigConfig", "TestClearMigConfig", "TestFetchRestore", "TestNvmlIsMigCapable"),
    *("TestNvmlEnableDisableMig", "TestSetMigConfigResolvesMigProfileOnTargetGPU"),
)
ELSEWHERE = {
    "TestIteratePermutationsUntilSuccess": "tests/sharing, the planner finds an order or says that there is none",
    "TestDiscoverProfiles": "test_nvml_mig.py",
}
HOLD = (
    *(*FILES, *ENTRIES, *FILTERS, *DEVICE_IDS, *MALFORMED, *WELL_FORMED, *POSSIBLE, *REFUSED),
    *(*LAYOUTS, *NAMES, *PAUSED, *WALKS, *ELSEWHERE),
)
DIFFER = {
    "TestMigConfigSpec/Empty": "an entry without fields is refused with the field that it lacks",
    "TestMigConfigSpec/Well formed with filter": "a filter that is no PCI ID, which no GPU could match, is refused",
    "TestMigConfigSpec/Well formed with multi-filter": "the same",
    "TestIsCIProfile": "a profile that cuts compute below its GPU instance is refused: no resource could name it",
}
_MODELS = "this model is not in our catalogue; its profiles come from the driver"
_EXPORT = "nothing exports a layout; `windlass node labels` and the annotations show it"
_HOOKS = "there are no hooks: nothing has to be stopped for a change"
_PAUSE = "no component is paused for a change"
NOT_APPLICABLE = {
    "TestMarshallUnmarshall (spec)": "nothing writes such a file",
    **{f"TestMergeConfigSpecs/case {number}": _EXPORT for number in range(7)},
    **{f"TestRunHooks/case {number}": _HOOKS for number in range(2)},
    "TestMarshallUnmarshall (hooks)": _HOOKS,
    "TestBuildAllBalancedConfig/only attributed profiles - no balanced config": "no GPU has such profiles",
    "TestBuildAllBalancedConfig/missing 2g profile - no balanced config": "no GPU in our catalogue lacks it",
    "TestBuildAllBalancedConfig/2-slot GPU - no balanced config": _MODELS,
    "TestBuildMigConfigSpec/RTX PRO 6000 (4-slot with new attributes)": _MODELS,
    "TestBuildMigConfigSpec/same profile different max counts creates multiple entries": "no such GPUs",
    **{f"TestNormalizeProfileName/{name}": _MODELS for name in ("4g.96gb+gfx", "1g.24gb+me.all", "1g.24gb-me")},
    "TestMaybeSetPaused/paused-for-mig-change": _PAUSE,
    **{f"TestMaybeSetTrue/case {number}": _PAUSE for number in range(4)},
    "TestGetHardcodedA30Profiles": "a table inside the original",
    **{
        f"TestPci{name}": "MIG mode without a driver (by PCI registers)"
        for name in ("IsMigCapable", "EnableDisableMig")
    },
    **{
        f"TestDeviceID/{name}": "packing numbers inside the original"
        for name in ("NewDeviceID", "WithSubsystem", "FromPacked", "Primary", "String")
    },
    "TestDeviceIDMatches/zero subsystem filter matches hardware with unknown subsystem": "a board of number 0 is none",
}
