"""Work that has to leave because its node goes, or because it is told to: evicted after it was asked, gangs as a whole.

`engine.decide` calls `with_notices` on the complete plan, just before the stage that turns evictions into asks. It
concerns only work that opted in to being asked; everything else stays until its node is gone, as without Windlass. Once
the notice is gone, nothing is evicted any more, and so the ask is withdrawn. Nodes that go refuse new pods by their
taints, and room elsewhere is kept (`kept_room`); other decisions do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from windlass.cluster.snapshot import Snapshot
from windlass.model.decision import Evict
from windlass.model.leaving import read_request
from windlass.model.notices import Notice, most_urgent, pod_notice
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.workload import Workload
from windlass.placement.explain.post_decision import PostDecisionState
from windlass.placement.kept_room import KeptRoom
from windlass.queueing.outcome import LEAVE_NOTICE


def with_notices(
    plan: Plan,
    snapshot: Snapshot,
    now: int,
    pod_rows: Callable[[], Mapping[str, int]],
    make_state: Callable[[], PostDecisionState],
) -> tuple[Plan, dict[str, int]]:
    """The plan with the evictions of work that has a notice; and by when victims have to leave, where that is known."""
    if not snapshot.any_asks:
        return plan, {}
    opted_in = [workload for workload in snapshot.workloads if workload.ask_terms is not None]
    if not opted_in:
        return plan, {}
    return _NoticeStage(snapshot, now, pod_rows(), make_state).run(plan, opted_in)


class _NoticeStage:
    def __init__(
        self,
        snapshot: Snapshot,
        now: int,
        pod_rows: Mapping[str, int],
        make_state: Callable[[], PostDecisionState],
    ) -> None:
        self._snapshot, self._now, self._rows = snapshot, now, pod_rows
        self._room = KeptRoom(make_state)

    def run(self, plan: Plan, opted_in: Sequence[Workload]) -> tuple[Plan, dict[str, int]]:
        victims = {evict.workload for evict in plan.evicts}
        leave_by: dict[str, int] = {}
        found: list[Evict] = []
        for workload in opted_in:
            pods = [pod for pod in self._running_pods(workload) if not pod.metadata.deletion_timestamp]
            notices = {pod.key: notice for pod in pods if (notice := self._notice(pod)) is not None}
            notice = most_urgent(notices.values())
            if notice is None or workload.evicting:
                continue
            leave_by[workload.key] = notice.leave_by(self._asked_at(pods))
            if workload.key in victims or not (notice.is_certain or self._room.would_start_elsewhere(workload)):
                continue
            leaving = [pod for pod in pods if pod.key in notices] if _members_are_independent(workload) else pods
            keys = tuple(pod.key for pod in leaving)
            found.append(Evict(workload.key, keys, "", LEAVE_NOTICE, message=notice.text))
            # What the API server does not let go stays: nothing waits for it.
            if len(leaving) == len(pods) and not self._snapshot.refusals.forbid_eviction(keys):
                plan = self._room.keep(plan, workload)
        return replace(plan, evicts=(*plan.evicts, *found)), leave_by

    def _running_pods(self, workload: Workload) -> list[Pod]:
        pods = self._snapshot.pods
        keys = (key for pod_set in workload.pod_sets for key in pod_set.pod_keys if key in self._rows)
        return [pods.objects[row] for key in keys if int(pods.node[row := self._rows[key]]) >= 0]

    def _notice(self, pod: Pod) -> Notice | None:
        """Of the pod itself, or of its node, unless it tolerates the taint by name."""
        node = self._snapshot.nodes.notices.get(int(self._snapshot.pods.node[self._rows[pod.key]]))
        if node is not None and any(node.taint and known.key == node.taint for known in pod.spec.tolerations):
            node = None
        return most_urgent(notice for notice in (node, pod_notice(pod.metadata)) if notice is not None)

    def _asked_at(self, pods: Sequence[Pod]) -> int:
        request = read_request(pod.metadata for pod in pods)
        return request.asked_at if request is not None and request.cause == LEAVE_NOTICE else self._now


def _members_are_independent(workload: Workload) -> bool:
    """Whether those on other nodes go on without the ones that leave; what is queued is stopped as a whole."""
    return not (workload.all_or_nothing or workload.queue_name or workload.min_pods is not None)
