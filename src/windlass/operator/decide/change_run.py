"""A change during one decision: its draft, its records, and how its phase moves.

Shared by `decide.change`, which moves the phase, and `decide.change_waves`, which takes nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from windlass.model.times import format_timestamp
from windlass.operator.decide import components
from windlass.operator.decide.pool import RENEWED_WAIT_SECONDS, Pool, wait_for
from windlass.operator.kinds.base import node_count
from windlass.operator.kinds.fleet_change import WORKLOAD_IMAGE, FleetChange, FleetChangeStatus, Wave
from windlass.operator.kinds.gpu_node import NodeChange
from windlass.operator.kinds.reasons import Reason
from windlass.operator.stateful_sets import StatefulSetView

CONTROL_PERCENT = 10
"""Nodes that stay on the old value as long as gates compare with it; at least one."""


def find_set(pool: Pool, change: FleetChange) -> StatefulSetView | None:
    """Whose image is changed; None also for a change of nodes."""
    wanted = change.spec.workload_image
    return pool.observed.stateful_sets.get(f"{wanted.namespace}/{wanted.name}") if wanted is not None else None


@dataclass
class ChangeRun:
    """A change during one decision."""

    pool: Pool
    change: FleetChange
    status: FleetChangeStatus
    """The draft."""

    @property
    def records(self) -> dict[str, NodeChange]:
        """Of this change, by node, as they are drafted now."""
        return {
            name: status.change
            for name, status in self.pool.statuses.items()
            if status.change is not None and status.change.uid == self.change.metadata.uid
        }

    @property
    def whole(self) -> int:
        """What the waves are shares of: the nodes of the stack, or the pods of a StatefulSet."""
        found = find_set(self.pool, self.change)
        return found.replicas if found is not None else len(self.pool.nodes)

    @property
    def waves(self) -> tuple[Wave, ...]:
        """As the spec has them. Where a gate compares with control nodes, the last wave is two: some nodes stay on
        the old value until its gates have passed, and are changed after that."""
        waves, whole = self.change.spec.waves, self.whole
        counts = [node_count(wave.nodes, whole, round_up=True) for wave in waves]
        if not self.change.spec.has_ratios or counts[-1] < whole or whole < 2:
            return waves
        most = whole - max(1, whole * CONTROL_PERCENT // 100)
        compared = (Wave(nodes=min(count, most), bake=wave.bake) for count, wave in zip(counts, waves, strict=True))
        return (*compared, waves[-1])

    @property
    def wave(self) -> Wave:
        """The one that the change is in; the last one, if a person has taken some away meanwhile."""
        return self.waves[min(self.status.wave, len(self.waves) - 1)]

    def put(self, phase: str, reason: str, message: str, seconds: int = RENEWED_WAIT_SECONDS) -> None:
        """Moves the draft; time and deadline stay as long as phase and reason do."""
        known = (self.status.reason if self.status.phase == phase else "", self.status.since, self.status.deadline)
        wait = wait_for(known, reason, self.pool.now, seconds)
        if self.pool.is_past(wait.deadline):
            wait = wait_for(("", "", ""), reason, self.pool.now, seconds)
        self.pool.wake(wait.deadline)
        self.status = msgspec.structs.replace(
            self.status, phase=phase, reason=str(reason), message=message, since=wait.since, deadline=wait.deadline
        )

    def end(self, phase: str, reason: str, message: str) -> None:
        now = format_timestamp(self.pool.now)
        self.status = msgspec.structs.replace(
            self.status, phase=phase, reason=str(reason), message=message, since=now, deadline=""
        )

    def fail(self, reason: Reason, message: str) -> None:
        """As `onFailure` says."""
        if self.change.spec.on_failure == "Hold":
            self.put("Held", reason, message)
        else:
            self.put("RollingBack", reason, message)


def changed_nodes(run: ChangeRun) -> list[str]:
    """Nodes that run the new value and are not under way, by whatever way they came to it."""
    records, component = run.records, run.status.component
    if component == WORKLOAD_IMAGE:
        return []  # `decide.image_change` counts pods
    return [
        name
        for name, node in run.pool.nodes.items()
        if components.chosen(node, component) == run.status.to
        and (name not in records or records[name].result == "Done")
    ]


def is_used(record: NodeChange) -> bool:
    """Whether it counts as one of the wave's nodes: under way, or tried and gone back."""
    return record.result != "Blocked" and record.result != "Done"


def draft(run: ChangeRun, name: str, record: NodeChange | None) -> None:
    run.pool.statuses[name] = msgspec.structs.replace(run.pool.statuses[name], change=record)
