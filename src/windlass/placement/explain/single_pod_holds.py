"""The holds of pods on their own, out of what the deciding pass has counted; and what the API server has refused.

`engine` calls it once everything is placed. Pods of one shape that were refused at the same moment share a verdict.
"""

from __future__ import annotations

import msgspec
import numpy as np

from windlass.cluster.node_state import Ints
from windlass.cluster.shape import read_requests
from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.model.reasons import INVALID_OBJECT
from windlass.model.verdict import Verdict
from windlass.placement.explain.advisor import Advisor
from windlass.placement.single_pod_placer import SinglePodResults


def make_single_pod_holds(
    snapshot: Snapshot, queue: Ints, placed: SinglePodResults, advisor: Advisor
) -> list[Hold]:
    """One for every pod of the queue (rows of the snapshot) that found no node."""
    keys = snapshot.pods.keys
    known: dict[int, Verdict] = {}
    holds = []
    for position in np.flatnonzero(placed.node < 0).tolist():
        row = int(queue[position])
        key = keys[row]
        held = placed.held.get(position)
        if held is not None:
            code = _code_of_unreadable(snapshot.pods.objects[row]) if held is INVALID_OBJECT else held.code
            detail = snapshot.unreadable.get(key, held.kube)
            holds.append(Hold(key, Verdict(code=code, nodes=snapshot.nodes.size, detail=detail)))
            continue
        refusal = int(placed.refusal[position])
        if refusal not in known:
            known[refusal] = advisor.refine_single_pod(placed.refusals[refusal].verdict(), row)
        holds.append(Hold(key, known[refusal]))
    return holds


def _code_of_unreadable(pod: Pod) -> str:
    """What can't be read of it has a code of its own, such as a GPU that is asked for by halves."""
    try:
        read_requests(pod)
    except InputError as error:
        return error.code or INVALID_OBJECT.code
    return INVALID_OBJECT.code


def with_api_refusals(holds: list[Hold], snapshot: Snapshot) -> list[Hold]:
    """With what the API server has just refused to each of them, or to others for its sake."""
    if not snapshot.refusals:
        return holds
    pods = {one.key: [key for part in one.pod_sets for key in part.pod_keys] for one in snapshot.workloads}
    found = []
    for hold in holds:
        refusals = snapshot.refusals.affecting(hold.workload, pods.get(hold.workload, (hold.workload,)))
        if refusals:
            hold = msgspec.structs.replace(
                hold, verdict=msgspec.structs.replace(hold.verdict, refusals=refusals)
            )
        found.append(hold)
    return found
