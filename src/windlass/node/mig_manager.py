"""Follows the node's label `nvidia.com/mig.config`: changes the GPUs' MIG layout accordingly and reports the
result.

The sidecar calls `on_node` with every change of the Node. States are NVIDIA's (`pending`, then `success` or
`failed`); an annotation has the reason of a failure, or the steps taken. Pods that hold an instance that would be
destroyed are never disturbed: the change fails and names them. The plugin detects new instances by itself, so no
component has to be paused.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from windlass.kube.backoff import Backoff
from windlass.model.errors import InputError, WindlassError
from windlass.model.names.nvidia import MIG_CONFIG_LABEL, MIG_CONFIG_STATE_LABEL
from windlass.node.backend.protocol import DeviceBackend
from windlass.node.config_source import read_yaml
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.mig_apply import apply_plans, describe_step
from windlass.sharing.inventory import Gpu, Inventory
from windlass.sharing.mig_config import (
    MigEntry,
    entry_for_gpu,
    generated_configs,
    read_mig_configs,
    select_config,
)
from windlass.sharing.mig_plan import Destroy, GpuPlan, SetMode, plan_gpu

REASON_ANNOTATION = "windlass.dev/mig-config-reason"
Holders = Callable[[], Mapping[str, Sequence[DeviceHolder]]]
CordonDevices = Callable[[frozenset[str]], AbstractContextManager[None]]
MAX_ATTEMPTS = 3
MPS_SERVER = "nvidia-cuda-mps"
"""What the kernel calls the MPS server; names of processes are cut after 15 characters."""


class Outcome(msgspec.Struct, frozen=True):
    state: str
    reason: str
    was_race: bool = False
    """Failed only because pods came and went meanwhile."""


class HoldersChanged(InputError):
    """Pods got or released GPUs during each attempt."""


def plan_node(
    inventory: Inventory, entries: Sequence[MigEntry], in_use: frozenset[str] = frozenset()
) -> tuple[GpuPlan, ...]:
    """The plan of each GPU that the layout names."""
    plans = []
    for gpu in inventory.gpus:
        entry = entry_for_gpu(gpu, entries)
        if entry is None or (not gpu.mig_capable and not entry.wanted):
            continue
        plans.append(plan_gpu(gpu, entry.wanted, enabled=entry.enabled, in_use=in_use))
    return tuple(plans)


def affected_devices(inventory: Inventory, plans: Sequence[GpuPlan]) -> frozenset[str]:
    """UUIDs of the instances that are destroyed and of the GPUs whose MIG mode changes."""
    found = set()
    for plan in plans:
        gpu = inventory.gpu(plan.uuid)
        for step in plan.steps:
            if isinstance(step, SetMode):
                found.add(plan.uuid)
            elif isinstance(step, Destroy) and gpu is not None:
                found.update(_instance_uuids(gpu, step.gpu_instance))
    return frozenset(found)


def _instance_uuids(gpu: Gpu, number: int | None) -> list[str]:
    return [instance.uuid for instance in gpu.instances if instance.gpu_instance == number]


class MigManager:
    def __init__(
        self,
        backend: DeviceBackend,
        *,
        config_file: Path | None,
        holders: Holders,
        write_state: Callable[[str, str], None],
        log: Callable[[str], None],
        cordon_devices: CordonDevices = lambda uuids: nullcontext(),
        process_name: Callable[[int], str] = lambda pid: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """While a context of `cordon_devices` is open, the kubelet does not allocate the devices with these UUIDs."""
        self._cordon_devices = cordon_devices
        self._process_name = process_name
        self._backend = backend
        self._config_file = config_file
        self._holders = holders
        self._write = write_state
        self._log = log
        self._handled = ""
        self._blocked = ""
        """The layout that failed because devices were in use or changed hands; `retry` tries it again."""
        self._clock = clock
        self._backoff = Backoff(first=5.0, most=300.0)
        self._retry_at = 0.0
        """After a race; a layout that pods block is tried as soon as they are gone."""

    def on_node(self, node: Mapping[str, Any]) -> None:
        """Acts if the label has changed, or if the agent sees it for the first time."""
        labels = node.get("metadata", {}).get("labels") or {}
        wanted, state = labels.get(MIG_CONFIG_LABEL, ""), labels.get(MIG_CONFIG_STATE_LABEL, "")
        if not wanted or wanted == self._handled:
            return
        is_applied = state == "success" and self._is_applied(wanted)
        if not is_applied:
            # Before all else: where it can't be written, as while writes are frozen, no GPU is changed, and the label
            # is looked at again.
            self._write("pending", "")
        self._handled = wanted
        self._blocked = ""
        self._backoff.reset()
        if not is_applied:
            self._apply_and_report(wanted)

    def retry(self) -> None:
        """Applies a layout that failed because devices were in use, once they are free."""
        if self._blocked and self._clock() >= self._retry_at and not self._refusals(self._blocked):
            self._write("pending", "")
            self._apply_and_report(self._blocked)

    def _apply_and_report(self, name: str) -> None:
        outcome = self.apply(name)
        # Only what pods stand in the way of: any other failure would come back the same, and disturb the GPUs again.
        blocked = outcome.state == "failed" and (outcome.was_race or self._refusals(name))
        self._blocked = name if blocked else ""
        self._retry_at = self._clock() + self._backoff.next() if outcome.was_race else 0.0
        self._write(outcome.state, outcome.reason)

    def _refusals(self, name: str) -> list[str]:
        """Why the layout can't be planned now; empty if it can."""
        try:
            inventory = self._backend.inventory()
            plans = plan_node(inventory, self.entries(name, inventory), self._in_use(inventory))
        except WindlassError as error:
            return [str(error)]
        return [plan.refusal for plan in plans if plan.refusal]

    def _is_applied(self, name: str) -> bool:
        try:
            inventory = self._backend.inventory()
            plans = plan_node(inventory, self.entries(name, inventory))
        except WindlassError:
            return False
        return not any(plan.steps or plan.refusal for plan in plans)

    def apply(self, name: str) -> Outcome:
        """Applies the named layout; never raises."""
        try:
            plans = self._apply_plans(name)
        except Exception as error:  # the node must not stay `pending` for ever
            reason = str(error) if isinstance(error, WindlassError) else f"{type(error).__name__}: {error}"
            self._log(f"MIG config {name}: {reason}")
            return Outcome("failed", reason, isinstance(error, HoldersChanged))
        changed = [f"GPU {plan.index}: {', '.join(map(describe_step, plan.steps))}" for plan in plans if plan.steps]
        self._log(f"MIG config {name}: {'; '.join(changed) or 'nothing to change'}")
        return Outcome("success", "; ".join(changed) or "nothing to change")

    def _apply_plans(self, name: str) -> tuple[GpuPlan, ...]:
        """Plans, cordons the devices that the plan affects, plans again with current holders, and executes."""
        for _ in range(MAX_ATTEMPTS):
            affected = affected_devices(self._backend.inventory(), self._feasible_plans(name))
            with self._cordon_devices(affected):
                plans = self._feasible_plans(name)
                if affected_devices(self._backend.inventory(), plans) <= affected:
                    apply_plans(self._backend, plans, self._log)
                    return plans
        raise HoldersChanged(f"pods got or released GPUs during each of {MAX_ATTEMPTS} attempts")

    def _feasible_plans(self, name: str) -> tuple[GpuPlan, ...]:
        """The plans; an `InputError` if any of them is refused."""
        inventory = self._backend.inventory()
        plans = plan_node(inventory, self.entries(name, inventory), self._in_use(inventory))
        refusals = [f"GPU {plan.index}: {plan.refusal}" for plan in plans if plan.refusal]
        if refusals:
            held = (holder for holders in self._holders().values() for holder in holders)
            pods = sorted({f"{holder.namespace}/{holder.pod}" for holder in held})
            by = f" (pods with devices: {', '.join(pods)})" if pods else ""
            raise InputError("; ".join(refusals) + by)
        return plans

    def entries(self, name: str, inventory: Inventory) -> tuple[MigEntry, ...]:
        if self._config_file is None:
            return select_config(generated_configs(inventory.gpus), name)
        raw = read_yaml(self._config_file)
        return select_config(read_mig_configs(raw, str(self._config_file)), name)

    def _in_use(self, inventory: Inventory) -> frozenset[str]:
        """Devices that a pod holds or a process uses."""
        busy = {uuid for uuid, holders in self._holders().items() if holders}
        for gpu in inventory.gpus:
            for process in self._backend.processes(gpu.uuid):
                # The plugin stops an MPS daemon whose GPU is cordoned; its clients are in the list themselves.
                if self._process_name(process.pid).startswith(MPS_SERVER):
                    continue
                busy.update(_instance_uuids(gpu, process.gpu_instance) or [gpu.uuid])
        return frozenset(busy)
