"""Which devices can be given to anybody, and if not, why and what to do.

Fed with faults as they happen, with readings once per round, and with the validator's outcome; feeds the device plugin
(the kubelet's Healthy or Unhealthy) and the journal (log lines, node Events, metrics). A GPU's fault counts for all its
replicas and MIG devices, an instance's fault for that instance. Nothing is for ever: a device comes back when the
driver asks for nothing any more, the readings are clean, some quiet time has passed and the validator has passed again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from windlass.node.backend import protocol
from windlass.node.backend.protocol import Fault, Reading
from windlass.node.health_rules import HealthRules
from windlass.node.xid import Action, lookup_xid
from windlass.sharing.inventory import Gpu, Inventory

THROTTLE_BITS = {"heat": 0x8 | 0x20 | 0x40, "power": 0x80}
"""NVML's bits for being slowed down by heat, and by a power brake."""
READING_PROBLEM_PREFIXES = ("recovery-", "remap-failure", "remap-pending", "links")
"""Kinds of ailments, by their beginnings, that one reading shows by itself, and that end with the next."""


class HealthProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a device can't be used."""

    reason: str
    action: str
    since: float
    heals_by_validation: bool = False
    """Whether a passed validation ends it; otherwise it ends when its cause is gone."""


class HealthChange(msgspec.Struct, frozen=True, kw_only=True):
    """A device became unusable, or usable again, or something else is worth telling."""

    uuid: str
    healthy: bool
    reason: str
    action: str = ""
    at: float = 0.0


class HealthTracker:
    """What is wrong with what, by UUID and kind of ailment."""

    def __init__(self, rules: HealthRules, clock: Callable[[], float]) -> None:
        self._rules = rules
        self._clock = clock
        self._ills: dict[str, dict[str, HealthProblem]] = {}
        self._slow_since: dict[tuple[str, str], float] = {}
        self._before: dict[str, tuple[float, Reading]] = {}
        self._last_fatal: dict[str, float] = {}
        self._most_links: dict[str, int] = {}
        self._changes: list[HealthChange] = []

    def unhealthy(self) -> dict[str, str]:
        """Why each device can't be used; healthy ones are absent."""
        return {
            uuid: "; ".join(each.reason for each in ills.values())
            for uuid, ills in self._ills.items()
            if ills
        }

    def actions(self) -> dict[str, str]:
        """What would help each of them, in a person's words; several things where several are wrong."""
        found = {
            uuid: dict.fromkeys(ailment.action for ailment in ills.values() if ailment.action)
            for uuid, ills in self._ills.items()
            if ills
        }
        return {uuid: "; ".join(actions) for uuid, actions in found.items()}

    def problem_kinds(self) -> dict[str, list[str]]:
        """What is wrong with each device in words that programs know, `xid-48` or `heat`; healthy ones are absent."""
        return {uuid: sorted(ills) for uuid, ills in self._ills.items() if ills}

    def drain_changes(self) -> tuple[HealthChange, ...]:
        """What happened since the last call."""
        told, self._changes = tuple(self._changes), []
        return told

    def on_faults(self, faults: Sequence[Fault], inventory: Inventory) -> None:
        for fault in faults:
            meaning = lookup_xid(fault.xid)
            if self._rules.is_ignored(fault.xid):
                continue
            hit = self._hit(fault, inventory)
            words = f"Xid {fault.xid}: {meaning.description}"
            for uuid in hit:
                if self._rules.is_fatal(fault.xid):
                    self._last_fatal[uuid] = self._clock()
                    self._strike(uuid, f"xid-{fault.xid}", words, meaning.action.value, heals=True)
                else:
                    self._tell(uuid, uuid not in self.unhealthy(), words, meaning.action.value)

    def _hit(self, fault: Fault, inventory: Inventory) -> list[str]:
        """The devices that a fault is about; all of them where the driver couldn't say."""
        gpu = inventory.gpu(fault.uuid)
        if gpu is None:
            return [each.uuid for each in inventory.gpus]
        if fault.gpu_instance >= 0:
            inside = [each.uuid for each in gpu.instances if each.gpu_instance == fault.gpu_instance]
            if inside:
                return inside
        return [gpu.uuid]

    def on_inventory(self, inventory: Inventory) -> None:
        """GPUs that are lost, or back."""
        for gpu in inventory.gpus:
            if gpu.is_lost:
                self._strike(gpu.uuid, "lost", "the driver has lost the GPU", Action.RESTART_NODE.value)
            elif "lost" in self._ills.get(gpu.uuid, {}):
                self._heal(gpu.uuid, "lost")
                self.require_validation(gpu.uuid, "it was lost and is back")
            self._links_lost(gpu)
        present = {gpu.uuid for gpu in inventory.gpus}
        present |= {each.uuid for gpu in inventory.gpus for each in gpu.instances}
        self._ills = {uuid: ills for uuid, ills in self._ills.items() if uuid in present}

    def _links_lost(self, gpu: Gpu) -> None:
        """NVLinks that were up once and aren't any more."""
        if not self._rules.watches_readings:
            return
        active = 0 if gpu.is_lost else gpu.switch_links + sum(gpu.peers)
        most = self._most_links[gpu.uuid] = max(active, self._most_links.get(gpu.uuid, 0))
        if active < most and not gpu.is_lost:
            words = f"{most - active} of {most} NVLinks went down"
            self._strike(gpu.uuid, "lost-links", words, Action.CHECK_LINKS.value)
        else:
            self._heal(gpu.uuid, "lost-links")

    def on_reading(self, gpu: Gpu, reading: Reading) -> None:
        """One GPU's counters."""
        if not reading or not self._rules.watches_readings:
            return
        now = self._clock()
        for kind, reason, action in _wrong(reading):
            self._strike(gpu.uuid, kind, reason, action)
        wrong = {kind for kind, _, _ in _wrong(reading)}
        for kind in list(self._ills.get(gpu.uuid, ())):
            if kind.startswith(READING_PROBLEM_PREFIXES) and kind not in wrong:
                self._heal(gpu.uuid, kind)
        self._throttling(gpu.uuid, reading, now)
        self._rates(gpu.uuid, reading, now)

    def _throttling(self, uuid: str, reading: Reading, now: float) -> None:
        reasons = int(reading.get(protocol.THROTTLE_REASONS, 0))
        for kind, bits in THROTTLE_BITS.items():
            if not reasons & bits:
                self._slow_since.pop((uuid, kind), None)
                self._heal(uuid, kind)
            elif now - self._slow_since.setdefault((uuid, kind), now) >= self._rules.throttled_seconds:
                what = "heat" if kind == "heat" else "the power brake"
                self._strike(uuid, kind, f"slowed down by {what}", "look at cooling and power supply")

    def _rates(self, uuid: str, reading: Reading, now: float) -> None:
        """Counters that may grow, but not fast; double-bit errors may not grow at all."""
        before = self._before.get(uuid)
        self._before[uuid] = (now, reading)
        if before is None or now <= before[0]:
            return
        minutes = (now - before[0]) / 60
        for kind, name, most, words in (
            ("pcie", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER", self._rules.replays_per_minute, "PCIe replays"),
            (
                "link-errors",
                "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
                self._rules.link_errors_per_minute,
                "NVLink recoveries",
            ),
        ):
            grown = reading.get(name, 0) - before[1].get(name, 0)
            if grown / minutes > most:
                self._strike(
                    uuid,
                    kind,
                    f"{grown:g} {words} within {60 * minutes:.0f} s",
                    "check slot and cabling",
                    heals=True,
                )
                self._last_fatal[uuid] = now
        errors = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
        if reading.get(errors, 0) > before[1].get(errors, 0):
            self._last_fatal[uuid] = now
            self._strike(uuid, "ecc", "double-bit ECC error", Action.RESET_GPU.value, heals=True)

    def require_validation(self, uuid: str, why: str) -> None:
        """Nobody gets the device before the validator has passed on it."""
        self._strike(
            uuid, "gate", f"not validated: {why}", "wait for the validator, or see why it fails", heals=True
        )

    def on_validated(self, gpu: Gpu, failures: Sequence[str]) -> None:
        """The validator's word on a GPU, which counts for its instances too."""
        devices = [gpu.uuid, *(instance.uuid for instance in gpu.instances)]
        if failures:
            self.require_validation(gpu.uuid, "; ".join(failures))
            return
        for uuid in devices:
            for kind, ill in list(self._ills.get(uuid, {}).items()):
                if ill.heals_by_validation:
                    self._heal(uuid, kind)

    def is_ready_for_validation(self, gpu: Gpu) -> bool:
        """Whether the validator could bring the GPU back: nothing else is wrong, and it has been quiet."""
        devices = [gpu.uuid, *(instance.uuid for instance in gpu.instances)]
        ills = [ill for uuid in devices for ill in self._ills.get(uuid, {}).values()]
        last = max((self._last_fatal.get(uuid, float("-inf")) for uuid in devices), default=0.0)
        quiet = self._clock() - last >= self._rules.quiet_seconds
        return bool(ills) and quiet and all(ill.heals_by_validation for ill in ills)

    def _strike(self, uuid: str, kind: str, reason: str, action: str, *, heals: bool = False) -> None:
        ills = self._ills.setdefault(uuid, {})
        known = ills.get(kind)
        since = known.since if known else self._clock()
        ills[kind] = HealthProblem(reason=reason, action=action, since=since, heals_by_validation=heals)
        if known is None or known.reason != reason:
            self._tell(uuid, False, reason, action)

    def _heal(self, uuid: str, kind: str) -> None:
        ills = self._ills.get(uuid, {})
        gone = ills.pop(kind, None)
        if gone is not None:
            left = "; ".join(each.reason for each in ills.values())
            self._tell(
                uuid, not ills, f"recovered from: {gone.reason}" + (f"; still: {left}" if left else ""), ""
            )

    def _tell(self, uuid: str, healthy: bool, reason: str, action: str) -> None:
        self._changes.append(
            HealthChange(uuid=uuid, healthy=healthy, reason=reason, action=action, at=self._clock())
        )


RECOVERY_ACTIONS = {
    1: Action.RESET_GPU.value,
    2: Action.RESTART_NODE.value,
    3: "drain work that uses peer-to-peer",
    4: Action.RESET_GPU.value,
    5: "recover the IMEX domain",
    6: "reset the bus of the GPU",
    7: Action.RESTART_NODE.value,
}


def _wrong(reading: Reading) -> list[tuple[str, str, str]]:
    """`(kind, reason, action)` of what one reading shows by itself."""
    found = []
    action = int(reading.get(protocol.RECOVERY_ACTION, 0))
    if action:
        todo = RECOVERY_ACTIONS.get(action, Action.CONTACT_SUPPORT.value)
        found.append((f"recovery-{action}", f"the driver asks for recovery action {action}", todo))
    if reading.get(protocol.ROW_REMAP_FAILURE):
        found.append(("remap-failure", "a memory row could not be remapped", Action.CONTACT_SUPPORT.value))
    if reading.get(protocol.ROW_REMAP_PENDING):
        found.append(("remap-pending", "a memory row waits to be remapped", Action.RESET_GPU.value))
    down = int(reading.get(protocol.LINKS_DOWN, 0))
    if down:
        found.append(("links", f"{down} NVLinks are down", Action.CHECK_LINKS.value))
    return found
