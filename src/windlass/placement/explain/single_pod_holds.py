"""Makes the holds of single pods from what the placement loop counted, and adds refusals of the API server.

`engine` calls it after everything is placed. Pods of one shape that were refused at the same state share a verdict.
"""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

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


def make_single_pod_holds(snapshot: Snapshot, queue: Ints, placed: SinglePodResults, advisor: Advisor) -> list[Hold]:
    """One hold for every pod of `queue` (rows of the snapshot) that found no node."""
    keys = snapshot.pods.keys
    verdicts: dict[int, Verdict] = {}
    holds = []
    for position in np.flatnonzero(placed.node < 0).tolist():
        row = int(queue[position])
        key = keys[row]
        reason = placed.held.get(position)
        if reason is not None:
            is_invalid = reason is INVALID_OBJECT
            code = _code_of_unreadable(snapshot.pods.objects[row]) if is_invalid else reason.code
            detail = snapshot.unreadable.get(key, reason.kube_words)
            remedy = "" if is_invalid else reason.remedy  # the error of an unreadable pod has its own remedy
            holds.append(Hold(key, Verdict(code, snapshot.nodes.size, detail=detail, remedy=remedy)))
            continue
        failure = int(placed.failure[position])
        if failure not in verdicts:
            verdicts[failure] = advisor.refine_single_pod(placed.failures[failure].verdict(), row)
        holds.append(Hold(key, verdicts[failure]))
    return holds


def _code_of_unreadable(pod: Pod) -> str:
    """The code of the parse error, where it has one: half a GPU as an extended resource, for example."""
    try:
        read_requests(pod)
    except InputError as error:
        return error.code or INVALID_OBJECT.code
    return INVALID_OBJECT.code


def with_api_refusals(holds: list[Hold], snapshot: Snapshot) -> list[Hold]:
    """The holds with recent refusals of the API server: of their own binding, or of evictions made for them."""
    if not snapshot.refusals:
        return holds
    pods = {
        workload.key: [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        for workload in snapshot.workloads
    }
    result = []
    for hold in holds:
        refusals = snapshot.refusals.affecting(hold.workload, pods.get(hold.workload, (hold.workload,)))
        if refusals:
            hold = replace(hold, verdict=replace(hold.verdict, refusals=refusals))
        result.append(hold)
    return result
