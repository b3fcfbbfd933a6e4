"""Work that waits for a Windlass that `windlass freeze` or `windlass handover` has stopped.

`why` asks after all stages: nothing is wrong with work that fits, and what only needs time gets none, until somebody
lets Windlass go on.
"""

from __future__ import annotations

import msgspec

from windlass.diagnose import queue
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.evidence import Evidence
from windlass.diagnose.finding import Finding
from windlass.diagnose.subject import Subject
from windlass.kube.freeze import HANDED_OVER, SCHEDULER_NAMESPACE, FreezeState, frozen_in


def with_freeze(evidence: Evidence, subject: Subject, finding: Finding, is_windlass: bool) -> Finding:
    """The finding about waiting work, with who stopped Windlass.

    That is the cause where nothing else, or only time, stands in its way; kube-scheduler, which Windlass is handed over
    to, still starts pods that are in no queue.
    """
    is_queued = queue.is_queued(subject)
    if not (subject.pending or (is_queued and not subject.pods)) or not (is_windlass or is_queued):
        return finding
    namespace, state = frozen_in(item.data for item in evidence.of_kind("ConfigMap"))
    if state is None:
        return finding
    is_handed_over = state.reason == HANDED_OVER
    stopped = _handed_over(state) if is_handed_over else f"Windlass is {state}"
    is_idle = finding.code in ("NONE", "UNKNOWN")
    waits = CAUSES[finding.code].is_wait and not finding.changed_by and (is_queued or not is_handed_over)
    if not (is_idle or waits):
        return msgspec.structs.replace(finding, evidence=(*finding.evidence, stopped))
    where = "" if namespace == SCHEDULER_NAMESPACE else f" -n {namespace}"
    remedy = f"let it go on: windlass freeze --off{where}"
    if is_handed_over:
        pods = f"kubectl get pods -n {namespace}"
        remedy = f"see whether kube-scheduler runs ({pods}), or let Windlass go on: windlass handover --back{where}"
    before = () if is_idle else (finding.code,)
    return Finding("WRONG_SCHEDULER", stopped, (finding.message, *finding.evidence), before, remedy)


def _handed_over(state: FreezeState) -> str:
    since, by = (f" since {state.since}" if state.since else ""), (f" by {state.by}" if state.by else "")
    return f"Windlass is {HANDED_OVER}{since}{by}: that knows no queues, no gangs and no shares of a GPU"
