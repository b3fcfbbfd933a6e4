"""The published unit tests of GPU Feature Discovery (NVIDIA/k8s-device-plugin at 1b826acc6: internal/lm,
cmd/gpu-feature-discovery, internal/vgpu), case by case.

Read there, written anew: names are the original's, `Test…/case`. Every name of `HOLD` is a test here; `DIFFER` and
`NOT_APPLICABLE` have the reason. `test_originals` compares the counts with the guide.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.node.machines import machine
from tests.sharing.gpus import gpu, inventory

from windlass.model.errors import InputError
from windlass.model.gpu_models import product_label
from windlass.node.labels.features import node_labels
from windlass.node.labels.sinks import owner_references
from windlass.sharing.advertised_resources import advertised_resources
from windlass.sharing.inventory import Gpu, Inventory
from windlass.sharing.plugin_config import resolve_config

GPU = "nvidia.com/gpu"
MODEL = "A100-80"
PRODUCT = "NVIDIA-A100-SXM4-80GB"
WHOLE = {"compute.major": "8", "compute.minor": "0", "family": "ampere", "memory": "81920"}
PLAIN = {"replicas": "1", "sharing-strategy": "none", "product": PRODUCT}
SLICED = {"replicas": "2", "sharing-strategy": "time-slicing", "product": f"{PRODUCT}-SHARED"}
UNSHARED = {"replicas": "0", "sharing-strategy": "none", "product": PRODUCT}
INVALID = {"count": "0", "replicas": "0", "sharing-strategy": "", "memory": "0", "product": f"{PRODUCT}-MIG-INVALID"}


def full(index: int = 0, **facts: object) -> Gpu:
    return gpu(MODEL, index, **facts)


def cut(index: int = 0, *profiles: tuple[str, int]) -> Gpu:
    """In MIG mode, with these instances."""
    return gpu(MODEL, index, cuts=profiles)


def sharing(kind: str = "timeSlicing", name: str = GPU, **fields: Any) -> dict[str, Any]:
    section = {kind: {"resources": [{"name": name, "replicas": 2}], **fields}}
    return {"flags": {"mpsRoot": "/run/mps"}, "sharing": section}


def labels_of(found: Inventory, file: dict[str, Any] | None = None, strategy: str = "none") -> dict[str, str]:
    labels = node_labels(found, resolve_config(file, flags={"--mig-strategy": strategy}))
    return {name.removeprefix("nvidia.com/"): value for name, value in labels.items()}


def gpu_labels(found: Inventory, file: dict[str, Any] | None = None, strategy: str = "none") -> dict[str, str]:
    """The labels of the resource nvidia.com/gpu, without the prefix."""
    labels = labels_of(found, file, strategy)
    return {name.removeprefix("gpu."): value for name, value in labels.items() if name.startswith("gpu.")}


NONE: dict[str, tuple[tuple[Gpu, ...], dict[str, Any] | None, dict[str, str]]] = {
    "TestMigStrategyNoneLabels/no devices returns empty labels": ((), None, {}),
    "TestMigStrategyNoneLabels/single non-mig device returns non-mig (none) labels": (
        (full(),),
        None,
        {**WHOLE, **PLAIN, "count": "1"},
    ),
    "TestMigStrategyNoneLabels/sharing is applied to single device": (
        (full(),),
        sharing(),
        {**WHOLE, **SLICED, "count": "1"},
    ),
    "TestMigStrategyNoneLabels/sharing is applied to multiple devices": (
        (full(), full(1)),
        sharing(),
        {**WHOLE, **SLICED, "count": "2"},
    ),
    "TestMigStrategyNoneLabels/sharing is not applied to single MIG device; replicas is zero": (
        (cut(),),
        sharing(),
        {**UNSHARED, "count": "1", "memory": "81920"},
    ),
    "TestMigStrategyNoneLabels/sharing is not applied to multiple MIG device; replicas is zero": (
        (cut(), cut(1)),
        sharing(),
        {**UNSHARED, "count": "2", "memory": "81920"},
    ),
    "TestMigStrategyNoneLabels/sharing is applied to MIG device and non-MIG device": (
        (cut(), full(1)),
        sharing(),
        {**WHOLE, **SLICED, "count": "2"},
    ),
    "TestGPUResourceLabeler/zero count returns empty": ((), None, {}),
    "TestGPUResourceLabeler/no sharing": ((full(),), None, {**WHOLE, **PLAIN, "count": "1"}),
    "TestGPUResourceLabeler/time-slicing ignores non-matching resource": (
        (full(),),
        sharing(name="nvidia.com/not-gpu"),
        {**WHOLE, **PLAIN, "count": "1"},
    ),
    "TestGPUResourceLabeler/time-slicing appends suffix and doubles count": (
        (full(),),
        sharing(),
        {**WHOLE, **SLICED, "count": "1"},
    ),
    "TestGPUResourceLabeler/time-slicing renamed does not append suffix and doubles count": (
        (full(),),
        sharing(renameByDefault=True),
        {**WHOLE, **SLICED, "count": "1", "product": PRODUCT},
    ),
    "TestGPUResourceLabeler/mps ignores non-matching resource": (
        (full(),),
        sharing("mps", "nvidia.com/not-gpu"),
        {**WHOLE, **PLAIN, "count": "1"},
    ),
    "TestGPUResourceLabeler/mps appends suffix and doubles count": (
        (full(),),
        sharing("mps"),
        {**WHOLE, **SLICED, "count": "1", "sharing-strategy": "mps"},
    ),
    "TestGPUResourceLabeler/mps renamed does not append suffix and doubles count": (
        (full(),),
        sharing("mps", renameByDefault=True),
        {**WHOLE, **SLICED, "count": "1", "sharing-strategy": "mps", "product": PRODUCT},
    ),
    "TestMigStrategyNone": ((full(),), None, {"count": "1", "product": PRODUCT, "memory": "81920"}),
}


@pytest.mark.parametrize(("gpus", "file", "expected"), NONE.values(), ids=NONE)
def test_labels_without_mig(gpus: tuple[Gpu, ...], file: dict[str, Any] | None, expected: dict[str, str]) -> None:
    found = gpu_labels(inventory(*gpus), file)
    assert {name: found.get(name) for name in expected} == expected
    assert bool(found) == bool(gpus)


SINGLE: dict[str, tuple[tuple[Gpu, ...], dict[str, str]]] = {
    "TestMigStrategySingleLabels/no devices returns empty labels": ((), {}),
    "TestMigStrategySingleLabels/single non-mig device returns non-mig (none) labels": (
        (full(),),
        {**WHOLE, **PLAIN, "count": "1"},
    ),
    "TestMigStrategySingleLabels/multiple non-mig device returns non-mig (none) labels": (
        (full(), full(1)),
        {**WHOLE, **PLAIN, "count": "2"},
    ),
    "TestMigStrategySingleLabels/empty mig devices returns MIG invalid label": ((cut(),), INVALID),
    "TestMigStrategySingleLabels/mixed mig config returns MIG invalid label": (
        (cut(0, ("1g.10gb", 0), ("3g.40gb", 4)),),
        INVALID,
    ),
    "TestMigStrategySingleLabels/mixed mig enabled and disabled returns invalid config": (
        (cut(0, ("1g.10gb", 0)), full(1)),
        INVALID,
    ),
    "TestMigStrategySingleLabels/enabled, disabled, and empty returns invalid config": (
        (cut(0, ("1g.10gb", 0)), full(1), cut(2)),
        INVALID,
    ),
    "TestMigStrategySingleForNoMigDevices": ((full(),), {"count": "1", "product": PRODUCT, "memory": "81920"}),
    "TestMigStrategySingleForMigDeviceMigDisabled": ((full(),), {"count": "1", "product": PRODUCT}),
}


@pytest.mark.parametrize(("gpus", "expected"), SINGLE.values(), ids=SINGLE)
def test_labels_with_the_strategy_single(gpus: tuple[Gpu, ...], expected: dict[str, str]) -> None:
    found = gpu_labels(inventory(*gpus), strategy="single")
    assert {name: found.get(name) for name in expected} == expected
    if gpus:
        assert labels_of(inventory(*gpus), strategy="single")["mig.strategy"] == "single"


ONE_G = {"product": f"{PRODUCT}-MIG-1g.10gb", "slices.gi": "1", "slices.ci": "1", "replicas": "1"}
ENGINES = ("copy", "decoder", "encoder", "jpeg", "ofa")
INSTANCES: dict[str, tuple[int, tuple[str, ...], str, dict[str, Any] | None, str, dict[str, str]]] = {
    "TestMigStrategySingleLabels/single mig-enabled device returns mig labels": (
        *(1, ("1g.10gb",), "single", None, "gpu"),
        {**ONE_G, "count": "1", "sharing-strategy": "none"},
    ),
    "TestMigStrategySingleLabels/multiple mig-enabled devices returns mig labels": (
        *(2, ("1g.10gb",), "single", None, "gpu"),
        {**ONE_G, "count": "2", "sharing-strategy": "none"},
    ),
    "TestMigResourceLabeler/no sharing": (*(1, ("1g.10gb",), "single", None, "gpu"), {**ONE_G, "count": "1"}),
    "TestMigResourceLabeler/shared appends suffix and doubles count": (
        *(1, ("1g.10gb",), "single", sharing(), "gpu"),
        {"count": "1", "replicas": "2", "sharing-strategy": "time-slicing", "product": f"{ONE_G['product']}-SHARED"},
    ),
    "TestMigResourceLabeler/renamed does not append suffix and doubles count": (
        *(1, ("1g.10gb",), "single", sharing(renameByDefault=True), "gpu"),
        {"count": "1", "replicas": "2", "sharing-strategy": "time-slicing", "product": ONE_G["product"]},
    ),
    "TestMigResourceLabeler/mig mixed appends shared": (
        *(1, ("1g.10gb",), "mixed", sharing(name="nvidia.com/mig-1g.10gb"), "mig-1g.10gb"),
        {"count": "1", "replicas": "2", "sharing-strategy": "time-slicing", "product": f"{ONE_G['product']}-SHARED"},
    ),
    "TestMigResourceLabeler/mig mixed rename does not append": (
        *(1, ("1g.10gb",), "mixed", sharing(name="nvidia.com/mig-1g.10gb", renameByDefault=True), "mig-1g.10gb"),
        {"count": "1", "replicas": "2", "sharing-strategy": "time-slicing", "product": ONE_G["product"]},
    ),
    "TestMigStrategySingle": (
        *(1, ("3g.40gb", "3g.40gb"), "single", None, "gpu"),
        {"count": "2", "product": f"{PRODUCT}-MIG-3g.40gb"},
    ),
    "TestMigStrategyMixed": (
        *(1, ("3g.40gb", "1g.10gb"), "mixed", None, "mig-3g.40gb"),
        {"count": "1", "product": f"{PRODUCT}-MIG-3g.40gb"},
    ),
}


@pytest.mark.parametrize(
    ("count", "profiles", "strategy", "file", "prefix", "expected"), INSTANCES.values(), ids=INSTANCES
)
def test_labels_of_instances(
    count: int,
    profiles: tuple[str, ...],
    strategy: str,
    file: dict[str, Any] | None,
    prefix: str,
    expected: dict[str, str],
) -> None:
    found = machine(MODEL, count, mig=profiles).inventory()
    labels = labels_of(found, file, strategy)
    assert {name: labels[f"{prefix}.{name}"] for name in expected} == expected
    instance = next(each for each in found.gpus[0].instances if each.profile in (profiles[0], prefix[4:]))
    measures = {"memory": instance.memory_mib, "multiprocessors": instance.multiprocessors}
    measures |= {f"engines.{engine}": getattr(instance.engines, engine) for engine in ENGINES}
    assert {name: labels[f"{prefix}.{name}"] for name in measures} == {name: str(n) for name, n in measures.items()}


CAPABLE = {
    f"TestMigCapabilityLabeler/{name}": case
    for name, case in (
        ("no devices returns empty labels", ((), None)),
        ("single non-mig capable device returns mig.capable as false", ((gpu("T4"),), "false")),
        ("multiple non-mig capable devices returns mig.capable as false", ((gpu("T4"), gpu("T4", 1)), "false")),
        ("single mig capable device returns mig.capable as true", ((full(),), "true")),
        ("one mig capable device among multiple returns mig.capable as true", ((gpu("T4"), full(1)), "true")),
    )
}
MODES = {
    f"TestGPUModeLabeler/{name}": case
    for name, case in (
        ("single device with compute PCI class", (("0x030000",), "graphics")),
        ("single device with graphics PCI class", (("0x030200",), "compute")),
        ("single device with switch PCI class", (("0x068000",), "unknown")),
        ("multiple device have same graphics PCI class", (("0x030200",) * 3, "compute")),
        ("multiple device have same compute PCI class", (("0x030000",) * 3, "graphics")),
        (
            "multiple device with some with graphics and others with compute PCI class",
            (("0x030000", "0x030200", "0x030000"), "unknown"),
        ),
    )
}
SHARED: dict[str, tuple[dict[str, Any] | None, str]] = {
    "TestSharingLabeler/nil config": (None, "false"),
    "TestSharingLabeler/empty config": ({}, "false"),
    "TestSharingLabeler/config with timeslicing replicas": (sharing(), "false"),
    "TestSharingLabeler/config with mps replicas no-mig-devices": (sharing("mps"), "true"),
}


@pytest.mark.parametrize(("gpus", "value"), CAPABLE.values(), ids=CAPABLE)
def test_whether_mig_is_possible(gpus: tuple[Gpu, ...], value: str | None) -> None:
    assert labels_of(inventory(*gpus)).get("mig.capable") == value


@pytest.mark.parametrize(("classes", "mode"), MODES.values(), ids=MODES)
def test_modes(classes: tuple[str, ...], mode: str) -> None:
    gpus = (full(index, pci_class=pci_class) for index, pci_class in enumerate(classes))
    assert labels_of(inventory(*gpus))["gpu.mode"] == mode


@pytest.mark.parametrize(("file", "value"), SHARED.values(), ids=SHARED)
def test_whether_mps_is_possible(file: dict[str, Any] | None, value: str) -> None:
    assert labels_of(inventory(full()), file)["mps.capable"] == value


def test_mps_beside_mig_is_refused_by_the_plugin_and_labelled_as_not_possible() -> None:
    """The case of `DIFFER` about it."""
    found, file = inventory(cut()), sharing("mps")
    assert labels_of(found, file)["mps.capable"] == "false"
    with pytest.raises(InputError, match="not supported for MIG devices"):
        advertised_resources(found, resolve_config(file))


NAMES = {
    f"TestSanitise/{text}": (text, value)
    for text, value in (
        ("a space separated string", "a-space-separated-string"),
        ("some(thing)else", "somethingelse"),
        ("some ( thing )else", "some-thing-else"),
        ("NVIDIA-TITAN-X-(Pascal)", "NVIDIA-TITAN-X-Pascal"),
        (" input  with multiple   spaces   ", "input-with-multiple-spaces"),
        ("some [ / thing / ]else", "some-thing-else"),
        ("some / thing /else", "some-thing-else"),
        ("some-thing.else_new", "some-thing.else_new"),
    )
}


@pytest.mark.parametrize(("text", "value"), NAMES.values(), ids=NAMES)
def test_names_become_label_values(text: str, value: str) -> None:
    assert product_label(text) == value


def agent_pod(*owners: str) -> dict[str, Any]:
    references = [{"apiVersion": "apps/v1", "kind": kind, "name": "gfd", "uid": f"uid-{kind}"} for kind in owners]
    return {"metadata": {"name": "gfd-x", "uid": "uid-pod", "ownerReferences": references}}


OWNERS = {
    "TestGetOwnerRefs/pod owned by DaemonSet returns two owner refs": (("DaemonSet",), ["uid-DaemonSet", "uid-pod"]),
    "TestGetOwnerRefs/pod not owned by anything returns nil": ((), []),
    "TestGetOwnerRefs/pod owned by ReplicaSet returns nil": (("ReplicaSet",), []),
}


@pytest.mark.parametrize(("owners", "uids"), OWNERS.values(), ids=OWNERS)
def test_owners_of_the_object(owners: tuple[str, ...], uids: list[str]) -> None:
    assert [reference["uid"] for reference in owner_references(agent_pod(*owners))] == uids


ELSEWHERE = {
    "TestGetOwnerRefs/empty pod name returns nil": "test_labels.py, test_outside_of_a_pod_there_is_no_owner_and_…",
    "TestRunOneshot": "test_sidecar.py",
    "TestRunInfiniteSleep": "test_sidecar.py",
    "TestRunWithNoTimestamp": "test_labels.py",
    "TestRunSleep": "test_sidecar.py",
    "TestFailOnNVMLInitError/errorOnInit = true, failOnInitError = true, no other errors": "test_agent.py",
    "TestFailOnNVMLInitError/errorOnInit = true, failOnInitError = true, some other error": "test_agent.py",
    "TestFailOnNVMLInitError/errorOnInit = false, failOnInitError = true, no other errors": "test_agent.py",
    "TestFailOnNVMLInitError/errorOnInit = false, failOnInitError = false, no other errors": "test_agent.py",
    "TestIsVGPUDevice": "test_vgpu.py",
    "TestVGPUGetInfo": "test_vgpu.py",
    "TestGetVendorSpecificCapability": "test_vgpu.py",
}
"""Cases that hold and are tested beside the module that they are about."""
HOLD = (*NONE, *SINGLE, *INSTANCES, *CAPABLE, *MODES, *SHARED, *NAMES, *OWNERS, *ELSEWHERE)
_WAITS = "without a driver the agent waits for it, and labels of earlier stay; the original writes labels without GPUs"
_RETRIES = "an error is logged and the labels are tried again; the original ends"
DIFFER = {
    "TestSharingLabeler/config with mps replicas mig-devices": "labels say mps.capable=false, and the plugin refuses; "
    "the original writes no labels at all",
    "TestGetOwnerRefs/pod not found returns error": "labels are written without owners, and the pod is asked for again",
    "TestFailOnNVMLInitError/errorOnInit = true, failOnInitError = false, no other errors": _WAITS,
    "TestFailOnNVMLInitError/errorOnInit = true, failOnInitError = false, some other error": _WAITS,
    "TestFailOnNVMLInitError/errorOnInit = false, failOnInitError = true, some other error": _RETRIES,
    "TestFailOnNVMLInitError/errorOnInit = false, failOnInitError = false, some other error": _RETRIES,
    "TestFallback/case 0": _WAITS,
}
NOT_APPLICABLE = {
    "TestSharingLabeler/config with no mps replicas": "fewer than two replicas are refused, there as well",
    "TestMigResourceLabeler/zero count returns empty": "there is no resource without devices",
    "TestFallback/case 1": "how a mock of the original's is closed",
}
