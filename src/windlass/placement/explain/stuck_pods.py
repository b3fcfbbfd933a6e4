"""Pods that are being deleted, should have ended and have not, where their end would let a held workload start.

`advisor` asks when it explains a hold. The search for victims ignores such pods, since their capacity and quota stay in
use; what they block is tried by a dry run.
"""

from __future__ import annotations

from collections.abc import Collection

from windlass.model.obstacle import STUCK, Obstacle
from windlass.model.pod import Pod
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.placement.explain.held_workload import HeldWorkload

MAX_TRIED = 8
"""Pods that are tried one at a time."""
MAX_NAMED = 3


def find_stuck_pods(held: HeldWorkload) -> tuple[Obstacle, ...]:
    """As few as are found without which it would start; empty where they are not the cause."""
    overlay = held.state.overlay
    rows = sorted(overlay.stuck_rows - overlay.removed_rows(), key=lambda row: overlay.snapshot.pods.objects[row].key)
    if not rows or not _would_start_without(held, rows):
        return ()
    alone = next(([row] for row in rows[:MAX_TRIED] if _would_start_without(held, [row])), None)
    pods, columns = overlay.snapshot.pods, overlay.snapshot.nodes
    return tuple(
        _obstacle(pods.objects[row], columns.names[int(pods.node[row])]) for row in (alone or rows)[:MAX_NAMED]
    )


def _would_start_without(held: HeldWorkload, rows: Collection[int]) -> bool:
    overlay, placed = held.state.overlay, held.state.placer.placed_workloads
    keys = [
        occupant.workload.key
        for occupant in held.state.running()
        if occupant.workload.evicting and set(rows).issuperset(placed[occupant.workload.key].running_rows)
    ]
    of_workloads = {row for key in keys for row in placed[key].running_rows}
    before = overlay.checkpoint()
    overlay.removes_stuck_pods = True
    try:
        for row in rows:
            if row not in of_workloads:
                overlay.remove_running(row)
        return held.dry_runs.would_start(held.piece, keys, ignore_plans=True)
    finally:
        overlay.rollback(before)
        overlay.removes_stuck_pods = False


def _obstacle(pod: Pod, node: str) -> Obstacle:
    at = parse_timestamp(pod.metadata.deletion_timestamp)
    should = f"should have ended at {format_timestamp(at)}"
    namespace, name = pod.key.split("/")
    remedy = f"kubectl delete pod {name} -n {namespace} --force --grace-period=0"
    return Obstacle(
        STUCK,
        f"pod {pod.key} on node {node} {should} and still holds resources that this workload needs: check the node and "
        f"the pod's finalizers, or run {remedy} once its processes are gone",
        f"a pod that {should} still holds resources that this workload needs: its owner or an administrator has to "
        "remove it",
        (pod.key,),
        node,
        at,
    )
