"""The holds of pods on their own, out of what the deciding pass has counted.

`engine` calls it once everything is placed. Pods of one shape that were refused at the same moment share a verdict.
"""

from __future__ import annotations

import numpy as np

from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import Ints
from windlass.model.decision import Hold
from windlass.model.verdict import Verdict
from windlass.placement.explain.advisor import Advisor
from windlass.placement.place import Placed


def lone_holds(snapshot: Snapshot, queue: Ints, placed: Placed, advisor: Advisor) -> list[Hold]:
    """One for every pod of the queue (rows of the snapshot) that found no node."""
    keys = snapshot.pods.keys
    known: dict[int, Verdict] = {}
    holds = []
    for position in np.flatnonzero(placed.node < 0).tolist():
        row = int(queue[position])
        key = keys[row]
        held = placed.held.get(position)
        if held is not None:
            detail = snapshot.unreadable.get(key, held.kube)
            holds.append(Hold(key, Verdict(code=held.code, nodes=snapshot.facts.size, detail=detail)))
            continue
        refusal = int(placed.refusal[position])
        if refusal not in known:
            known[refusal] = advisor.refined_lone(placed.refusals[refusal].verdict(), row)
        holds.append(Hold(key, known[refusal]))
    return holds
