"""Outcomes put together as decisions: pieces into their workload, planned starts into reservations.

`placement.admission` calls it once everything is decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec.structs import replace

from windlass.cluster.facts import NodeFacts
from windlass.model.decision import Admit, AdmittedPodSet, Hold, Reserve
from windlass.model.verdict import Verdict
from windlass.model.workload import Workload
from windlass.placement.elastic import whole_key
from windlass.placement.timeplan.calendar import Shortfall
from windlass.placement.timeplan.walls import Wall, counts_by_node, domain_of
from windlass.queueing.outcome import Admitted


def wholes(keys: Iterable[str]) -> tuple[str, ...]:
    """The workloads of these pieces, each once."""
    return tuple(dict.fromkeys(whole_key(key) for key in keys))


def admit_of(whole: Workload, parts: Sequence[Admitted]) -> Admit:
    """One decision a workload: its pieces together."""
    sets: dict[str, AdmittedPodSet] = {}
    for part in parts:
        nodes = part.nodes or tuple({} for _ in part.choices)
        for choice, where in zip(part.choices, nodes, strict=True):
            known = sets.get(choice.name)
            count, merged = choice.count, dict(where)
            if known is not None:
                count += known.count
                merged = {
                    name: known.nodes.get(name, 0) + where.get(name, 0) for name in {**known.nodes, **where}
                }
            sets[choice.name] = AdmittedPodSet(choice.name, count, choice.flavors, merged)
    after = wholes(name for part in parts for name in part.after)
    asked = {one.name: one.count for one in whole.pod_sets} if whole.admission is None else {}
    pod_sets = tuple(
        replace(one, wanted=asked[one.name]) if one.count < asked.get(one.name, 0) else one
        for one in sets.values()
    )
    return Admit(whole.key, whole.kind, parts[0].queue, pod_sets, after)


def reserve_of(wall: Wall, facts: NodeFacts) -> Reserve:
    domain = domain_of([seat.node for seat in wall.seats], facts)
    return Reserve(whole_key(wall.key), domain, wall.start, wall.end, counts_by_node(wall, facts))


def short_of_room(short: Iterable[Shortfall], nodes: int) -> list[Hold]:
    """Reservations that lack room."""
    return [
        Hold(
            one.key,
            Verdict("GPU_FULL", nodes, detail=f"there is room for {one.found} of its {one.wanted} units"),
        )
        for one in short
    ]
