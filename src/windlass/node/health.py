"""Which devices may be allocated, and for the others: why not, and what to do.

`health_watch` feeds faults as they happen, readings once per round and validator results. The device plugin reads
the result (the kubelet's Healthy or Unhealthy), and so does the journal (log, node Events, metrics). A fault of a
GPU counts for all its replicas and MIG devices, a fault of an instance for that instance only. A device becomes
healthy again when the driver asks for no recovery action, the readings are clean, `quiet_seconds` have passed, and
the validator has passed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from windlass.node.backend import protocol
from windlass.node.backend.protocol import Fault, Reading
from windlass.node.health_rules import HealthRules
from windlass.node.xid import Action, lookup_xid
from windlass.sharing.inventory import Gpu, Inventory

THROTTLE_BITS = {"heat": 0x8 | 0x40, "power": 0x80}
"""NVML's clock event bits for slowdown by the hardware and for the power brake. The driver's own thermal slowdown
(0x20) is how passively cooled cards work under load, and no fault."""
READING_PROBLEMS = {
    "recovery-": protocol.RECOVERY_ACTION,
    "remap-failure": protocol.ROW_REMAP_FAILURE,
    "remap-pending": protocol.ROW_REMAP_PENDING,
    "links": protocol.LINKS_DOWN,
}
"""Prefixes of problem kinds that a single reading shows, with the value that shows them. They end with the first
reading that has the value and not the problem: a value that is missing says nothing."""
DOUBLE_BIT_ERRORS = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"


GROWING_COUNTERS = (
    ("pcie", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "PCIe replays"),
    ("link-errors", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "NVLink recoveries"),
)


class HealthProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a device can't be used."""

    reason: str
    action: str
    since: float
    heals_by_validation: bool = False
    """Whether a passed validation ends it; otherwise it ends with its cause."""


class HealthChange(msgspec.Struct, frozen=True, kw_only=True):
    """A device became unhealthy or healthy, or a fault without effect on its health was seen."""

    uuid: str
    healthy: bool
    reason: str
    action: str = ""
    at: float = 0.0


class HealthTracker:
    """The problems of each device, by UUID and kind of problem."""

    def __init__(self, rules: HealthRules, clock: Callable[[], float]) -> None:
        self._rules, self._clock = rules, clock
        self._problems: dict[str, dict[str, HealthProblem]] = {}
        self._slow_since: dict[tuple[str, str], float] = {}
        self._last_counts: dict[tuple[str, str], tuple[float, float]] = {}
        """When a counter of a device was last read, and its value."""
        self._last_fatal: dict[str, float] = {}
        self._unread_since: dict[tuple[str, str], float] = {}
        """Since when the value behind a device's problem is missing from readings."""
        self._most_links: dict[str, int] = {}
        self._changes: list[HealthChange] = []

    def unhealthy(self) -> dict[str, str]:
        """Why each unhealthy device can't be used, by UUID."""
        return {uuid: _reasons(problems) for uuid, problems in self._problems.items() if problems}

    def actions(self) -> dict[str, str]:
        """What a person can do about each unhealthy device, by UUID."""
        found = {
            uuid: dict.fromkeys(problem.action for problem in problems.values() if problem.action)
            for uuid, problems in self._problems.items()
            if problems
        }
        return {uuid: "; ".join(actions) for uuid, actions in found.items()}

    def problem_kinds(self) -> dict[str, list[str]]:
        """The kinds of each unhealthy device's problems (`xid-48`, `heat`), by UUID."""
        return {uuid: sorted(problems) for uuid, problems in self._problems.items() if problems}

    def drain_changes(self) -> tuple[HealthChange, ...]:
        """The changes since the last call."""
        changes, self._changes = tuple(self._changes), []
        return changes

    def on_faults(self, faults: Sequence[Fault], inventory: Inventory) -> None:
        for fault in faults:
            meaning = lookup_xid(fault.xid)
            if self._rules.is_ignored(fault.xid):
                continue
            uuids = self._devices_hit(fault, inventory)
            reason = f"Xid {fault.xid}: {meaning.description}"
            for uuid in uuids:
                if self._rules.is_fatal(fault.xid):
                    self._last_fatal[uuid] = self._clock()
                    self._add_problem(uuid, f"xid-{fault.xid}", reason, meaning.action.value, heals=True)
                else:
                    self._record_change(uuid, uuid not in self.unhealthy(), reason, meaning.action.value)

    def _devices_hit(self, fault: Fault, inventory: Inventory) -> list[str]:
        """The devices that a fault concerns: all GPUs if the driver does not name one."""
        gpu = inventory.gpu(fault.uuid)
        if gpu is None:
            return [gpu.uuid for gpu in inventory.gpus]
        if fault.gpu_instance >= 0:
            number = fault.gpu_instance
            inside = [instance.uuid for instance in gpu.instances if instance.gpu_instance == number]
            return inside or [gpu.uuid]
        return [gpu.uuid]

    def on_inventory(self, inventory: Inventory) -> None:
        """Lost GPUs, GPUs that came back, and lost links. Devices that no longer exist are forgotten."""
        for gpu in inventory.gpus:
            if gpu.is_lost:
                self._add_problem(gpu.uuid, "lost", "the driver has lost the GPU", Action.RESTART_NODE.value)
            elif "lost" in self._problems.get(gpu.uuid, {}):
                self._remove_problem(gpu.uuid, "lost")
                self.require_validation(gpu.uuid, "it was lost and is back")
            self._check_link_count(gpu)
        present = {gpu.uuid for gpu in inventory.gpus}
        present |= {instance.uuid for gpu in inventory.gpus for instance in gpu.instances}
        self._problems = {uuid: problems for uuid, problems in self._problems.items() if uuid in present}

    def _check_link_count(self, gpu: Gpu) -> None:
        """Compares with the most NVLinks that were ever up."""
        if not self._rules.watches_readings:
            return
        active = 0 if gpu.is_lost else gpu.switch_links + sum(gpu.peers)
        most = self._most_links[gpu.uuid] = max(active, self._most_links.get(gpu.uuid, 0))
        if active < most and not gpu.is_lost:
            reason = f"{most - active} of {most} NVLinks went down"
            self._add_problem(gpu.uuid, "lost-links", reason, Action.CHECK_LINKS.value)
        else:
            self._remove_problem(gpu.uuid, "lost-links")

    def on_reading(self, gpu: Gpu, reading: Reading) -> None:
        if not reading or not self._rules.watches_readings:
            return
        now = self._clock()
        problems = _problems_in_reading(reading)
        for kind, reason, action in problems:
            self._add_problem(gpu.uuid, kind, reason, action)
        present = {kind for kind, _, _ in problems}
        for kind in list(self._problems.get(gpu.uuid, ())):
            names = [name for prefix, name in READING_PROBLEMS.items() if kind.startswith(prefix)]
            if names and kind not in present and self._has_ended((gpu.uuid, kind), names[0] in reading, now):
                self._remove_problem(gpu.uuid, kind)
        self._check_throttling(gpu.uuid, reading, now)
        self._check_error_rates(gpu.uuid, reading, now)

    def _has_ended(self, problem: tuple[str, str], is_read: bool, now: float) -> bool:
        """Whether its value says so, or has not been there for long: MIG mode hides some values for good."""
        if is_read:
            self._unread_since.pop(problem, None)
            return True
        return now - self._unread_since.setdefault(problem, now) >= self._rules.unread_seconds

    def _check_throttling(self, uuid: str, reading: Reading, now: float) -> None:
        if protocol.THROTTLE_REASONS not in reading:
            return
        reasons = int(reading[protocol.THROTTLE_REASONS])
        for kind, bits in THROTTLE_BITS.items():
            if not reasons & bits:
                self._slow_since.pop((uuid, kind), None)
                self._remove_problem(uuid, kind)
            elif now - self._slow_since.setdefault((uuid, kind), now) >= self._rules.throttled_seconds:
                cause = "heat" if kind == "heat" else "the power brake"
                self._add_problem(uuid, kind, f"slowed down by {cause}", "look at cooling and power supply")

    def _check_error_rates(self, uuid: str, reading: Reading, now: float) -> None:
        """Some counters may grow, but not fast; double-bit errors may not grow at all."""
        limits = (self._rules.replays_per_minute, self._rules.link_errors_per_minute)
        for (kind, name, unit), limit in zip(GROWING_COUNTERS, limits, strict=True):
            grown, minutes = self._growth(uuid, name, reading, now)
            if minutes and grown / minutes > limit:
                reason = f"{grown:g} {unit} within {60 * minutes:.0f} s"
                self._add_problem(uuid, kind, reason, "check slot and cabling", heals=True)
                self._last_fatal[uuid] = now
        if self._growth(uuid, DOUBLE_BIT_ERRORS, reading, now)[0] > 0:
            self._last_fatal[uuid] = now
            self._add_problem(uuid, "ecc", "double-bit ECC error", Action.RESET_GPU.value, heals=True)

    def _growth(self, uuid: str, name: str, reading: Reading, now: float) -> tuple[float, float]:
        """Of a counter since it was last read, and the minutes since; zeros if it is missing or new."""
        count = reading.get(name)
        previous = self._last_counts.get((uuid, name))
        if count is None:
            return 0.0, 0.0
        self._last_counts[uuid, name] = (now, count)
        if previous is None or now <= previous[0]:
            return 0.0, 0.0
        return count - previous[1], (now - previous[0]) / 60

    def require_validation(self, uuid: str, why: str) -> None:
        """Keeps the device unhealthy until the validator passes on it."""
        action = "wait for the validator, or see why it fails"
        self._add_problem(uuid, "gate", f"not validated: {why}", action, heals=True)

    def on_validated(self, gpu: Gpu, failures: Sequence[str]) -> None:
        """The validator's result for a GPU, which counts for its instances too."""
        devices = [gpu.uuid, *(instance.uuid for instance in gpu.instances)]
        if failures:
            self.require_validation(gpu.uuid, "; ".join(failures))
            return
        for uuid in devices:
            for kind, problem in list(self._problems.get(uuid, {}).items()):
                if problem.heals_by_validation:
                    self._remove_problem(uuid, kind)

    def is_ready_for_validation(self, gpu: Gpu) -> bool:
        """Whether validation would make it healthy: no other problem, and quiet for `quiet_seconds`."""
        devices = [gpu.uuid, *(instance.uuid for instance in gpu.instances)]
        problems = [problem for uuid in devices for problem in self._problems.get(uuid, {}).values()]
        last_fatal = max((self._last_fatal.get(uuid, float("-inf")) for uuid in devices), default=0.0)
        is_quiet = self._clock() - last_fatal >= self._rules.quiet_seconds
        return bool(problems) and is_quiet and all(problem.heals_by_validation for problem in problems)

    def _add_problem(self, uuid: str, kind: str, reason: str, action: str, *, heals: bool = False) -> None:
        problems = self._problems.setdefault(uuid, {})
        known = problems.get(kind)
        since = known.since if known else self._clock()
        problems[kind] = HealthProblem(reason=reason, action=action, since=since, heals_by_validation=heals)
        if known is None or known.reason != reason:
            self._record_change(uuid, False, reason, action)

    def _remove_problem(self, uuid: str, kind: str) -> None:
        problems = self._problems.get(uuid, {})
        removed = problems.pop(kind, None)
        if removed is not None:
            remaining = f"; still: {_reasons(problems)}" if problems else ""
            self._record_change(uuid, not problems, f"recovered from: {removed.reason}{remaining}", "")

    def _record_change(self, uuid: str, healthy: bool, reason: str, action: str) -> None:
        at = self._clock()
        self._changes.append(HealthChange(uuid=uuid, healthy=healthy, reason=reason, action=action, at=at))


def _reasons(problems: Mapping[str, HealthProblem]) -> str:
    return "; ".join(problem.reason for problem in problems.values())


RECOVERY_ACTIONS = {
    1: Action.RESET_GPU.value,
    2: Action.RESTART_NODE.value,
    3: "drain work that uses peer-to-peer",
    4: Action.RESET_GPU.value,
    5: "recover the IMEX domain",
    6: "reset the bus of the GPU",
    7: Action.RESTART_NODE.value,
}


def _problems_in_reading(reading: Reading) -> list[tuple[str, str, str]]:
    """`(kind, reason, action)` of each problem that a single reading shows."""
    found = []
    action = int(reading.get(protocol.RECOVERY_ACTION, 0))
    if action:
        remedy = RECOVERY_ACTIONS.get(action, Action.CONTACT_SUPPORT.value)
        found.append((f"recovery-{action}", f"the driver asks for recovery action {action}", remedy))
    if reading.get(protocol.ROW_REMAP_FAILURE):
        found.append(("remap-failure", "a memory row could not be remapped", Action.CONTACT_SUPPORT.value))
    if reading.get(protocol.ROW_REMAP_PENDING):
        found.append(("remap-pending", "a memory row waits to be remapped", Action.RESET_GPU.value))
    links_down = int(reading.get(protocol.LINKS_DOWN, 0))
    if links_down:
        found.append(("links", f"{links_down} NVLinks are down", Action.CHECK_LINKS.value))
    return found
