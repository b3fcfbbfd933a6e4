"""The acceptance checks of a GPU node, each with its evidence.

`windlass node validate` prints the result, and `health_watch` makes a GPU available when none of its checks failed.
A check that does not apply passes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.model.gpu_models import find_gpu_model, product_label
from windlass.node.backend import protocol
from windlass.node.backend.protocol import ComputeResult, DeviceBackend, DeviceError
from windlass.node.host_root import HostRoot
from windlass.node.unsupported import VFIO
from windlass.node.validator.node_checks import check_driver_files, check_runtime
from windlass.node.validator.outcome import FAIL, NOT_APPLICABLE, PASS, Check
from windlass.sharing.inventory import Gpu, Inventory
from windlass.sharing.plugin_config import PluginConfig

MEMORY_TOLERANCE = 0.02
THROTTLE_CAUSES = {0x8: "the hardware", 0x40: "the temperature", 0x80: "the power brake"}
"""NVML's bit → cause. A slowdown by the driver itself (0x20) is no fault."""

ComputeFunction = Callable[[str], ComputeResult]


class Validation(msgspec.Struct, frozen=True):
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        return all(check.outcome != FAIL for check in self.checks)

    def failures(self, gpu: int) -> tuple[Check, ...]:
        """Why one GPU can't be used: its own failures and the driver's, not those of other GPUs."""
        return tuple(
            check
            for check in self.checks
            if check.outcome == FAIL and (check.gpu == gpu or (check.gpu is None and check.name == "driver"))
        )


def validate(
    backend: DeviceBackend,
    root: HostRoot,
    compute: ComputeFunction | None = None,
    *,
    expected_driver: str = "",
    only: frozenset[str] | None = None,
    config: PluginConfig | None = None,
) -> Validation:
    """All checks. `compute` runs the computation on a device (None skips it); `only` limits it to these devices."""
    try:
        inventory = backend.inventory()
    except DeviceError as error:
        return Validation((Check(name="driver", outcome=FAIL, evidence=str(error), remedy="load the NVIDIA driver"),))
    checks = [_check_driver(inventory, root, expected_driver), _check_visible(inventory, root)]
    config = config or PluginConfig()
    checks += [check_driver_files(root, inventory.driver.version, config), check_runtime(root, config)]
    for gpu in inventory.gpus:
        checks += _gpu_checks(backend, gpu, inventory)
        if compute is not None:
            checks += _check_computation(gpu, compute, only)
    return Validation(tuple(checks))


def _check_driver(inventory: Inventory, root: HostRoot, expected: str) -> Check:
    version = inventory.driver.version
    module = root.read("/proc/driver/nvidia/version")
    if expected and version != expected:
        return Check(
            name="driver",
            outcome=FAIL,
            evidence=f"driver {version}, expected {expected}",
            remedy=f"install driver {expected}",
        )
    if module and version not in module:
        return Check(
            name="driver",
            outcome=FAIL,
            evidence=f"library {version}, kernel module: {module.splitlines()[0]}",
            remedy="reboot, or reload the kernel modules: library and module differ",
        )
    return Check(name="driver", outcome=PASS, evidence=f"{version}, CUDA {_dotted(inventory.driver.cuda)}")


def _check_visible(inventory: Inventory, root: HostRoot) -> Check:
    on_bus = {gpu.bus_id for gpu in root.pci_gpus() if gpu.driver != VFIO}
    seen = {gpu.bus_id for gpu in inventory.gpus if not gpu.is_lost}
    missing = sorted(on_bus - seen)
    lost = sorted(gpu.bus_id for gpu in inventory.gpus if gpu.is_lost)
    if missing or lost:
        return Check(
            name="visible",
            outcome=FAIL,
            evidence=f"the driver does not see GPUs of the PCI bus: {', '.join(sorted({*missing, *lost}))}",
            remedy="reboot the node; replace boards that stay missing",
        )
    if not seen:
        return Check(
            name="visible",
            outcome=FAIL,
            evidence="no NVIDIA GPU was found",
            remedy="run this on a node with NVIDIA GPUs",
        )
    return Check(name="visible", outcome=PASS, evidence=f"{len(seen)} of {len(on_bus) or len(seen)} GPUs")


def _gpu_checks(backend: DeviceBackend, gpu: Gpu, inventory: Inventory) -> list[Check]:
    if gpu.is_lost:
        return [_check(gpu, "answers", FAIL, "the GPU is lost", "reset the GPU or reboot the node")]
    reading = backend.reading(gpu.uuid)
    return [
        _check_memory(gpu),
        _check_links(gpu, inventory, reading),
        _check_remapping(gpu, reading),
        _check_throttling(gpu, reading),
        _check_recovery(gpu, reading),
    ]


def _check_memory(gpu: Gpu) -> Check:
    known = find_gpu_model(product_label(gpu.name))
    if known is None:
        return _check(
            gpu, "memory", NOT_APPLICABLE, f"{gpu.memory_mib} MiB; how much {gpu.name} should have is not known"
        )
    deviation = abs(gpu.memory_mib - known.memory_mib) / known.memory_mib
    evidence = f"{gpu.memory_mib} MiB, expected {known.memory_mib} MiB"
    if deviation > MEMORY_TOLERANCE:
        return _check(gpu, "memory", FAIL, evidence, "memory is missing: reset the GPU, else replace it")
    return _check(gpu, "memory", PASS, evidence)


def _check_links(gpu: Gpu, inventory: Inventory, reading: protocol.Reading) -> Check:
    down = int(reading.get(protocol.LINKS_DOWN, 0))
    active = gpu.switch_links + sum(gpu.peers)
    if not active and not down:
        return _check(gpu, "nvlink", NOT_APPLICABLE, "no NVLink in use")
    if down:
        return _check(gpu, "nvlink", FAIL, f"{down} NVLinks are down", "check cables and the fabric manager")
    linked_gpus = [peer for peer in inventory.gpus if peer.switch_links or sum(peer.peers)]
    most = max(peer.switch_links + sum(peer.peers) for peer in linked_gpus)
    if active < most:
        return _check(
            gpu, "nvlink", FAIL, f"{active} NVLinks are active, {most} on other GPUs", "check the fabric manager"
        )
    return _check(gpu, "nvlink", PASS, f"{active} NVLinks are active")


def _check_remapping(gpu: Gpu, reading: protocol.Reading) -> Check:
    if reading.get(protocol.ROW_REMAP_FAILURE):
        return _check(gpu, "row remapping", FAIL, "a row could not be remapped", "replace the GPU")
    if reading.get(protocol.ROW_REMAP_PENDING):
        return _check(gpu, "row remapping", FAIL, "a remapping is pending", "reset the GPU")
    if protocol.ROW_REMAP_PENDING not in reading:
        return _check(gpu, "row remapping", NOT_APPLICABLE, "the driver does not report it (MIG mode, or an older GPU)")
    return _check(gpu, "row remapping", PASS, "no remapping is pending")


def _check_throttling(gpu: Gpu, reading: protocol.Reading) -> Check:
    reasons = int(reading.get(protocol.THROTTLE_REASONS, 0))
    if _throttled_by(reasons):
        return _check(
            gpu, "throttling", FAIL, f"clocks are slowed down by {_throttled_by(reasons)}", "look at cooling and power"
        )
    return _check(gpu, "throttling", PASS, "clocks are not slowed down by the hardware")


def _throttled_by(reasons: int) -> str:
    return ", ".join(cause for bit, cause in THROTTLE_CAUSES.items() if reasons & bit)


def _check_recovery(gpu: Gpu, reading: protocol.Reading) -> Check:
    action = int(reading.get(protocol.RECOVERY_ACTION, 0))
    text = RECOVERY_ACTION_TEXT.get(action, f"action {action}")
    if action:
        return _check(gpu, "recovery", FAIL, f"the driver asks for a recovery: {text}", text)
    return _check(gpu, "recovery", PASS, "the driver asks for no recovery")


RECOVERY_ACTION_TEXT = {
    0: "nothing",
    1: "reset the GPU",
    2: "reboot the node",
    3: "drain peer-to-peer work",
    4: "drain, then reset the GPU",
    5: "recover the IMEX domain",
    6: "reset the bus",
    7: "reboot the system",
}


def _check_computation(gpu: Gpu, compute: ComputeFunction, only: frozenset[str] | None) -> list[Check]:
    """On the GPU, or on each of its instances."""
    if gpu.is_lost:
        return []
    devices = [instance.uuid for instance in gpu.instances] if gpu.mig_enabled else [gpu.uuid]
    if not devices:
        return [_check(gpu, "computation", NOT_APPLICABLE, "MIG is on and there are no instances")]
    checks = []
    for uuid in devices if only is None else [device for device in devices if device in only]:
        result = compute(uuid)
        if result.right:
            evidence = f"correct on {result.device} ({result.multiprocessors} SMs), {result.milliseconds} ms"
            checks.append(_check(gpu, "computation", PASS, evidence))
        elif result.is_busy:
            evidence = f"{uuid} is used exclusively by another process, such as an MPS server: {result.error}"
            checks.append(_check(gpu, "computation", NOT_APPLICABLE, evidence))
        else:
            checks.append(_check(gpu, "computation", FAIL, f"{uuid}: {result.error}", "reset the GPU"))
    return checks


def _check(gpu: Gpu, name: str, outcome: str, evidence: str, remedy: str = "") -> Check:
    return Check(name=name, outcome=outcome, evidence=evidence, gpu=gpu.index, remedy=remedy)


def _dotted(version: tuple[int, int]) -> str:
    return f"{version[0]}.{version[1]}"
