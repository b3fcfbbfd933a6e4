"""The verdicts of all gates of a change: which nodes are compared, and what is known of them.

Called by `decide.change`. Faults come from the nodes themselves; what was seen on a changed node once is kept in its
record, so that a fault which comes and goes counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from windlass.model.times import parse_timestamp
from windlass.operator.decide.canary_work import judge_work
from windlass.operator.decide.gates import Compared, Verdict, judge, judge_faults
from windlass.operator.decide.pool import Pool
from windlass.operator.kinds.fleet_change import FleetChange, FleetChangeStatus
from windlass.operator.kinds.gpu_node import NodeChange


class Sides(msgspec.Struct, frozen=True):
    """The nodes that are compared."""

    changed: tuple[str, ...]
    control: tuple[str, ...]
    earlier: frozenset[str]
    """Those of the changed ones that have passed in an earlier wave."""
    touched: tuple[str, ...] = ()
    """Nodes that have the old value, too: their faults count all the same."""


def verdicts(
    pool: Pool,
    change: FleetChange,
    status: FleetChangeStatus,
    records: Mapping[str, NodeChange],
    sides: Sides,
) -> Iterator[Verdict]:
    ours, control = sides.changed, sides.control
    since = parse_timestamp(status.bake_since)
    compared = Compared(ours, control, (pool.now - since) / 3600 if since else 0.0)
    judged = {name: record for name, record in records.items() if record.wave >= status.promoted}
    faults = {name: record.faults for name, record in judged.items() if record.faults}
    faults |= {name: tuple(fault.fault for fault in pool.nodes[name].faults) for name in control}
    for repair in pool.repairs:
        if since and parse_timestamp(repair.status.opened) >= since and repair.spec.node in control:
            faults.setdefault(repair.spec.node, (repair.spec.fault,))
    under_way = tuple(name for name, record in judged.items() if not record.result and record.faults)
    touched = (*ours, *sides.touched)
    with_faults = Compared((*touched, *under_way), control, compared.hours)
    silent = [name for name in touched if not pool.nodes[name].is_ready]
    yield judge_faults(with_faults, faults, silent, change.spec.max_faults, change.spec.fault_rate)
    yield from judge_work(pool, change, status, ours)
    if status.phase in ("Baking", "Held"):
        for gate in change.spec.gates:
            reading = pool.observed.readings.get((change.name, gate.name))
            if reading is not None and reading.at <= since:
                # Of an earlier wave, or of the second in which the bake began, and perhaps from before it.
                reading = None
                pool.wake(pool.now + 1)
            yield judge(gate, reading, compared if control else _last_compared(compared, sides), pool.now)


def _last_compared(compared: Compared, sides: Sides) -> Compared:
    """Where no node is left on the old value: those of this wave, beside those that have passed in earlier ones."""
    earlier = tuple(name for name in compared.changed if name in sides.earlier)
    last = tuple(name for name in compared.changed if name not in sides.earlier)
    return Compared(last, earlier, compared.hours, "earlier changed")
