"""Why a piece is held before any node is checked: a gate or a claim of one of its pods, or of its template.

`decision_pass` asks for every piece that waits, in a queue or not; `late_pods` for pods that came after the admission.
One pod that can't start holds the whole piece.
"""

from __future__ import annotations

from windlass.cluster.workloads.pod_sets import template_of
from windlass.model.reasons import Reason
from windlass.model.workload import Workload
from windlass.placement.decision_context import DecisionContext
from windlass.placement.filters.prefilter import prefilter_pod, prefilter_template


def member_hold(context: DecisionContext, piece: Workload) -> Reason | None:
    """None where all its pods may be placed. Admission removes Kueue's own gates, so they hold nothing in a queue."""
    listers, objects = context.snapshot.listers, context.snapshot.pods.objects
    for pod_set in piece.pod_sets:
        for key in pod_set.pod_keys:
            if key in context.pods_with_rules:
                pod = objects[context.pod_row[key]]
                hold = prefilter_pod(template_of(pod) if piece.queue_name else pod, listers)
                if hold is not None:
                    return hold
    if piece.admission is not None:
        return None
    # Pods that don't exist yet would wait for the same, with quota that others could use.
    for pod_set in piece.pod_sets:
        if len(pod_set.pod_keys) < pod_set.count:
            hold = prefilter_template(pod_set.template, listers)
            if hold is not None:
                return hold
    return None
