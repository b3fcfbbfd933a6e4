"""A plan of moves as the `DefragPlan` document, and as a table.

Called by `cli.plan_defrag`. Fields of the document are only ever added.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.cli.output import plain_table, windlass_document
from windlass.dump.configuration import Configuration, UsedConfiguration
from windlass.model.decision_document import device_document
from windlass.model.defrag import DefragPlan, Move, Start
from windlass.model.times import format_timestamp

if TYPE_CHECKING:
    from rich.table import Table

MILLI = 1000


def defrag_document(plan: DefragPlan, now: int, configuration: UsedConfiguration | None = None) -> dict[str, Any]:
    """`kind: DefragPlan`."""
    return windlass_document(
        "DefragPlan",
        now=format_timestamp(now),
        moves=[_move(move) for move in plan.moves],
        cost={"gpuSeconds": plan.lost_milli_seconds / MILLI, "pods": len(plan.moves)},
        brings={
            "gpus": sum(start.gpu_milli for start in plan.starts) / MILLI,
            "pods": sum(start.pods for start in plan.starts),
            "starts": [_start(start) for start in plan.starts],
        },
        bound=_bound(plan, all(start.is_proven for start in plan.starts)),
        waits=[{"workload": wait.workload, "message": wait.message} for wait in plan.waits],
        notes=list(plan.notes),
        configuration=(configuration or Configuration().used).document,
    )


def _bound(cost: DefragPlan | Start, is_proven: bool) -> dict[str, Any]:
    return {
        "gpuSeconds": cost.bound_milli_seconds / MILLI,
        "pods": cost.bound_moves,
        "gap": optimality_gap(cost.lost_milli_seconds, cost.bound_milli_seconds),
        "proven": is_proven,
    }


def optimality_gap(cost: int, bound: int) -> float:
    """How far the cost may be above the optimum, as a part of the cost; 0 if nothing cheaper exists."""
    return round((cost - bound) / cost, 4) if cost > bound else 0.0


def _move(move: Move) -> dict[str, Any]:
    return {
        "pod": move.pod,
        "from": move.from_node,
        "to": move.to_node,
        "devices": [device_document(grant) for grant in move.devices],
        "for": move.for_workload,
        "gpuSeconds": move.lost_milli_seconds / MILLI,
        "stop": move.is_stop,
    }


def _start(start: Start) -> dict[str, Any]:
    return {
        "workload": start.workload,
        "pods": start.pods,
        "gpus": start.gpu_milli / MILLI,
        "moves": start.moves,
        "gpuSeconds": start.lost_milli_seconds / MILLI,
        "bound": _bound(start, start.is_proven),
        "by": start.by,
        "steps": start.steps,
    }


def defrag_table(plan: DefragPlan) -> Table:
    """One row per move, in order, then the workloads that start, then those that still wait."""
    rows = []
    for number, move in enumerate(plan.moves, start=1):
        to = f"{move.to_node} (temporary)" if move.is_stop else move.to_node
        lost = f"{move.lost_milli_seconds / MILLI:g}"
        rows.append((f"move {number}", move.pod, move.from_node, to, move.for_workload, lost))
    rows += [("then", start.workload, "", "starts", _worth(start), "") for start in plan.starts]
    rows += [("waits", wait.workload, "", "", wait.message, "") for wait in plan.waits]
    headings = ("STEP", "POD OR WORKLOAD", "FROM", "TO", "FOR, OR WHY NOT", "LOSES GPU-S")
    return plain_table(headings, rows)


def _worth(start: Start) -> str:
    pods = "1 pod" if start.pods == 1 else f"{start.pods} pods"
    gpus = f" with {start.gpu_milli / MILLI:g} GPUs" if start.gpu_milli else ""
    return pods + gpus


def summary(plan: DefragPlan) -> str:
    """One line: cost, started workloads, distance from the optimum."""
    if not plan.moves:
        return "no moves are planned"
    moves = "1 move loses" if len(plan.moves) == 1 else f"{len(plan.moves)} moves lose"
    workloads = "1 workload starts" if len(plan.starts) == 1 else f"{len(plan.starts)} workloads start"
    cost, bound = plan.lost_milli_seconds, plan.bound_milli_seconds
    if all(start.is_proven for start in plan.starts):
        best = "nothing cheaper exists"
    else:
        best = f"any plan loses at least {bound / MILLI:g} (gap {optimality_gap(cost, bound):.0%})"
    return f"{moves} {cost / MILLI:g} GPU-seconds, {workloads}; {best}"
