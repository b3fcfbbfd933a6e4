"""Which nodes a change takes next: how many its wave needs, which could be had, and what stands in the way.

Called by `decide.change` while a wave progresses. Taking a node is drafting its record; `decide.change_nodes` does
the rest when the record has been read back.
"""

from __future__ import annotations

from windlass.model.labels import matches_selector
from windlass.operator.decide import components
from windlass.operator.decide.change_nodes import new_record
from windlass.operator.decide.change_run import ChangeRun, changed_nodes, draft, is_used
from windlass.operator.decide.gpu_operator import UPGRADE_IS_OVER, UPGRADE_STATE_LABEL
from windlass.operator.decide.pool import takes_node
from windlass.operator.decide.room import by_room
from windlass.operator.decide.windows import why_closed
from windlass.operator.kinds.base import node_count
from windlass.operator.kinds.reasons import Reason


def target(run: ChangeRun) -> int:
    """How many nodes have the new value at the end of this wave; never more than can be had."""
    wanted = node_count(run.wave.nodes, len(run.pool.nodes), round_up=True)
    used = [name for name, record in run.records.items() if is_used(record)]
    return min(max(1, wanted), len(changed_nodes(run)) + len(used) + len(candidates(run)))


def candidates(run: ChangeRun) -> list[str]:
    """Nodes that could be taken, cheapest first: those that are up, not cordoned by others, and not in repair."""
    pool, records = run.pool, run.records
    selector = run.change.spec.canary.nodes if run.status.wave == 0 else None
    in_repair = {
        repair.spec.node
        for repair in pool.repairs
        if repair.is_open and (takes_node(repair) or repair.status.phase not in ("Ticket", "Held"))
    }
    found = [
        name
        for name, node in pool.nodes.items()
        if name not in records
        and name not in in_repair
        and components.chosen(node, run.status.component) != run.status.to
        and not node.unschedulable
        and node.is_ready
        and pool.statuses[name].phase == "Ready"
        and node.labels.get(UPGRADE_STATE_LABEL, "") in UPGRADE_IS_OVER
        and not _is_held_by_other_change(run, name)
        and (selector is None or matches_selector(selector, node.labels))
    ]
    return sorted(found, key=lambda name: (sum(pod.gpus for pod in pool.holders(name)), name))


def _is_held_by_other_change(run: ChangeRun, name: str) -> bool:
    record = run.pool.statuses[name].change
    return record is not None and record.uid != run.change.metadata.uid and not record.result


def take(run: ChangeRun, count: int) -> tuple[Reason, str] | None:
    """Drafts records for up to `count` nodes; what stands in the way, if not all could be had."""
    pool, change = run.pool, run.change
    if change.spec.paused:
        return Reason.Paused, "paused (windlass change resume)"
    closed = why_closed(change.spec, pool.now)
    if closed is not None:
        pool.wake(closed[2])
        return closed[0], closed[1]
    limit = pool.budget.limit
    if change.spec.max_unavailable is not None:
        limit = max(1, min(limit, node_count(change.spec.max_unavailable, len(pool.nodes), round_up=False)))
    under_way = sum(not record.result for record in run.records.values())
    found = candidates(run)
    has_budget = under_way < limit and len(pool.budget.unavailable) < pool.budget.limit
    names, obstacle = by_room(run, found, count) if has_budget else (found, None)
    for name in names[:count]:
        if under_way >= limit or not pool.budget.take(name):
            return Reason.BudgetFull, f"{pool.unavailable_nodes()}, and {limit} may be"
        under_way += 1
        draft(run, name, new_record(pool, change, name))
    return obstacle
