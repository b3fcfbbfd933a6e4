"""Follows the node's label `nvidia.com/mig.config`: cuts the GPUs as it names, and says how that went.

Runs in the process beside the plugin, fed with the node as it changes. The states are NVIDIA's (`pending`, then
`success` or `failed`); the reason of a failure, or the plan that was carried out, is in an annotation. Pods that hold
an instance that would have to go are never disturbed: the change fails and names them. The plugin sees new instances
by itself, so nothing has to be paused, and nothing can stay paused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec

from windlass.model.errors import InputError, WindlassError
from windlass.node.backend.protocol import DeviceBackend
from windlass.node.config_source import read_yaml
from windlass.node.exporter.collection_context import DeviceHolder
from windlass.node.mig_apply import apply_plans, describe_step
from windlass.sharing.inventory import Inventory
from windlass.sharing.mig_config import (
    MigEntry,
    entry_for_gpu,
    generated_configs,
    read_mig_configs,
    select_config,
)
from windlass.sharing.mig_plan import Destroy, GpuPlan, SetMode, plan_gpu

CONFIG_LABEL, STATE_LABEL = "nvidia.com/mig.config", "nvidia.com/mig.config.state"
REASON_ANNOTATION = "windlass.dev/mig-config-reason"
Holders = Callable[[], Mapping[str, Sequence[DeviceHolder]]]
CordonDevices = Callable[[frozenset[str]], AbstractContextManager[None]]
TRIES = 3


class Outcome(msgspec.Struct, frozen=True):
    state: str
    reason: str


def plan_node(
    inventory: Inventory, entries: Sequence[MigEntry], in_use: frozenset[str] = frozenset()
) -> tuple[GpuPlan, ...]:
    """What the layout means for each GPU that it names."""
    plans = []
    for gpu in inventory.gpus:
        entry = entry_for_gpu(gpu, entries)
        if entry is None or (not gpu.mig_capable and not entry.wanted):
            continue
        plans.append(plan_gpu(gpu, entry.wanted, enabled=entry.enabled, in_use=in_use))
    return tuple(plans)


def affected_devices(inventory: Inventory, plans: Sequence[GpuPlan]) -> frozenset[str]:
    """UUIDs of the instances that are destroyed and of the GPUs whose mode changes."""
    found = set()
    for plan in plans:
        gpu = inventory.gpu(plan.uuid)
        for step in plan.steps:
            if isinstance(step, SetMode):
                found.add(plan.uuid)
            elif isinstance(step, Destroy) and gpu is not None:
                gone = [each for each in gpu.instances if each.gpu_instance == step.gpu_instance]
                found.update(each.uuid for each in gone)
    return frozenset(found)


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
    ) -> None:
        """Within `hold_back`, nobody is given the devices with these UUIDs."""
        self._hold_back = cordon_devices
        self._backend = backend
        self._config_file = config_file
        self._holders = holders
        self._write = write_state
        self._log = log
        self._done = ""
        self._refused = ""
        """The layout that waits for something to be no longer in use."""

    def on_node(self, node: Mapping[str, Any]) -> None:
        """Acts where the label has changed, or where the agent hasn't seen it yet."""
        labels = node.get("metadata", {}).get("labels") or {}
        wanted, state = labels.get(CONFIG_LABEL, ""), labels.get(STATE_LABEL, "")
        if not wanted or wanted == self._done:
            return
        self._done = wanted
        self._refused = ""
        if state == "success" and self._is_applied(wanted):
            return
        if state != "pending":
            self._write("pending", "")
        self._bring_about(wanted)

    def retry(self) -> None:
        """A layout that failed because something was in use is brought about once it could be."""
        if self._refused and not self._refusals(self._refused):
            self._bring_about(self._refused)

    def _bring_about(self, name: str) -> None:
        outcome = self.apply(name)
        self._refused = name if outcome.state == "failed" and self._refusals(name) else ""
        self._write(outcome.state, outcome.reason)

    def _refusals(self, name: str) -> list[str]:
        """Why the layout can't be planned now; empty where it can."""
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
        """Cuts the GPUs as the named layout says; never raises."""
        try:
            plans = self._carry_out(name)
        except Exception as error:  # whatever it is, the node must not be left pending without a word
            words_of = str(error) if isinstance(error, WindlassError) else f"{type(error).__name__}: {error}"
            self._log(f"MIG config {name}: {words_of}")
            return Outcome("failed", words_of)
        changed = [
            f"GPU {plan.index}: {', '.join(map(describe_step, plan.steps))}" for plan in plans if plan.steps
        ]
        self._log(f"MIG config {name}: {'; '.join(changed) or 'nothing to change'}")
        return Outcome("success", "; ".join(changed) or "nothing to change")

    def _carry_out(self, name: str) -> tuple[GpuPlan, ...]:
        """Plans, makes sure that nobody is given what will go, looks once more who holds what, and does it."""
        for _ in range(TRIES):
            going = affected_devices(self._backend.inventory(), self._plans(name))
            with self._hold_back(going):
                plans = self._plans(name)
                if affected_devices(self._backend.inventory(), plans) <= going:
                    apply_plans(self._backend, plans, self._log)
                    return plans
        raise InputError("devices changed hands each time while the layout was planned")

    def _plans(self, name: str) -> tuple[GpuPlan, ...]:
        """What would be done now; an `InputError` where it can't be."""
        inventory = self._backend.inventory()
        plans = plan_node(inventory, self.entries(name, inventory), self._in_use(inventory))
        self._refuse(plans)
        return plans

    def entries(self, name: str, inventory: Inventory) -> tuple[MigEntry, ...]:
        if self._config_file is None:
            return select_config(generated_configs(inventory.gpus), name)
        raw = read_yaml(self._config_file)
        return select_config(read_mig_configs(raw, str(self._config_file)), name)

    def _in_use(self, inventory: Inventory) -> frozenset[str]:
        """Devices that a pod holds or a process is on."""
        busy = {uuid for uuid, holders in self._holders().items() if holders}
        for gpu in inventory.gpus:
            for process in self._backend.processes(gpu.uuid):
                inside = [each.uuid for each in gpu.instances if each.gpu_instance == process.gpu_instance]
                busy.update(inside or [gpu.uuid])
        return frozenset(busy)

    def _refuse(self, plans: Sequence[GpuPlan]) -> None:
        refused = [f"GPU {plan.index}: {plan.refusal}" for plan in plans if plan.refusal]
        if refused:
            pods = sorted(
                {f"{each.namespace}/{each.pod}" for held in self._holders().values() for each in held}
            )
            by = f" (pods with devices: {', '.join(pods)})" if pods else ""
            raise InputError("; ".join(refused) + by)
