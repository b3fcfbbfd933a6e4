"""Why pods wait for a node: queue, gates, gang, claims, then what every node says and what lies behind it.

Base class of `why.Inquiry`. Each step before the nodes names a cause of its own; what the nodes show is a symptom,
which `root_causes` and `hypothesis` explain.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from windlass.cluster.workloads.pod_sets import placement_marks
from windlass.diagnose import autoscaler, gang, queue, refusal, unschedulable
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.conflict_names import unprovisioned_claim
from windlass.diagnose.engine_view import engine_finding, queueing_finding, unhealthy_gpus
from windlass.diagnose.evidence import ClusterObject
from windlass.diagnose.explanations import FIXED_BY_NEW_NODE, NO_ROOM
from windlass.diagnose.finding import Finding, MissingEvidence, Patch, RuledOut
from windlass.diagnose.hypothesis import conclude
from windlass.diagnose.moves import making_room_finding
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.nodes import gpu_resources
from windlass.diagnose.patches import patches_for
from windlass.diagnose.quotas import closed_queue_finding
from windlass.diagnose.resource_claims import claim_finding
from windlass.diagnose.root_causes import collect_hypotheses, no_candidate_finding, with_contributing, with_rollout
from windlass.diagnose.scheduler_condition import (
    CLAIMS_MISSING,
    condition_finding,
    disagreement,
    latest_words,
    sees_all_pods,
    storage_finding,
)
from windlass.diagnose.scheduler_health import (
    DECIDES_WITHIN,
    DEFAULT_SCHEDULERS,
    is_heard_of,
    is_untouched,
    scheduler_finding,
)
from windlass.diagnose.unschedulable import SchedulingAnalysis
from windlass.diagnose.unstructured import find_condition, nested_maps, nested_string
from windlass.diagnose.virtual_gpus import foreign_parts, registered_cards, too_large_finding, without_card_parts
from windlass.diagnose.what_if import WhatIf
from windlass.diagnose.without_claims import without_claims
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.model.reasons import Reason
from windlass.model.requests import format_amount
from windlass.model.times import format_duration, parse_timestamp
from windlass.placement.explain.node_reasons import NODE_REFUSAL_CODES

CAPACITY_CODES = (
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "TOPOLOGY_MANAGER_REFUSED",
    "CPU_MEM_INSUFFICIENT",
    "POD_COUNT_LIMIT",
    "EPHEMERAL_STORAGE",
)
"""Causes of a hold that go away when other pods end."""
NODE_CODES = NODE_REFUSAL_CODES | {"GPU_FRAGMENTED"}
"""Causes of a hold that nodes show."""


class Answer(msgspec.Struct, frozen=True):
    finding: Finding
    analysis: SchedulingAnalysis | None = None
    patches: tuple[Patch, ...] = ()
    links: tuple[Finding, ...] = ()
    """Findings between the engine's hold and the cause, the symptom first."""
    ruled_out: tuple[RuledOut, ...] = ()
    is_certain: bool = True
    doubt: str = ""
    """What speaks against it."""


class WaitingInquiry(WhatIf):
    def waiting_answer(self, waiting: Sequence[ClusterObject]) -> Answer:
        item = waiting[0]
        if (queued := self.queued_answer()) is not None:
            return queued
        for finding in (
            self.held_finding(),
            _gated(item),
            closed_queue_finding(self.evidence, self.subject),
        ):
            if finding is not None:
                return Answer(finding, patches=patches_for(self, finding, None))
        if (unseen := self._without_scheduler(item)) is not None:
            return unseen
        for finding in (
            self._deadlock(waiting),
            self._incomplete(),
            claim_finding(self.evidence, item, self.now),
            making_room_finding(self.evidence, item),
        ):
            if finding is not None:
                return Answer(finding, patches=patches_for(self, finding, None))
        said = refusal.reported_pod_cause(self.evidence, self.subject, self.now)
        if said is not None:
            return Answer(said.cause, links=said.links, is_certain=said.is_certain)
        if binding := refusal.binding_failure(self.evidence, item):
            return Answer(_unbound(item, binding))
        if not self.evidence.nodes:
            return self._by_events(item)
        return self._first_that_fails(waiting)

    def _without_scheduler(self, item: ClusterObject) -> Answer | None:
        """No scheduler has looked at the pod, and its own does not work: what others say comes after that."""
        created = parse_timestamp(item.created) if item.created else self.now
        name = nested_string(item.data, "spec", "schedulerName") or DEFAULT_SCHEDULERS[0]
        is_young = self.now - created < DECIDES_WITHIN  # one that exists may look at it yet
        if not is_untouched(self.evidence, item) or (is_young and is_heard_of(self.evidence, name, item)):
            return None
        finding = scheduler_finding(self.evidence, name, item, self.now)
        if finding is None or finding.missing:
            return None
        pod = item.decoded
        try:
            analysis = unschedulable.analyze_pod(self.evidence, self.fit, pod) if isinstance(pod, Pod) else None
        except InputError:
            analysis = None  # it can't be tried on nodes
        return Answer(finding, analysis, patches_for(self, finding, analysis))

    def _deadlock(self, waiting: Sequence[ClusterObject]) -> Finding | None:
        """Gangs that wait for one another, unless a node would take a pod that waits: then they wait for nobody."""
        found = gang.deadlock_finding(self.evidence, self.subject)
        pod = waiting[0].decoded
        if found is None or not isinstance(pod, Pod) or not self.evidence.nodes:
            return found
        try:
            return None if self.fit.feasible_nodes(pod) else found
        except InputError:
            return found

    def queued_answer(self) -> Answer | None:
        """What holds it in its queue. Where Windlass has said that, the engine says it with numbers and names."""
        found = queue.queue_finding(self.evidence, self.subject)
        if found is None:
            return None
        hold, is_known = self.explained_hold, bool(self.evidence.nodes) and self.knows_queues
        if hold is None or not is_known or not queue.is_said_by_windlass(self.subject, found):
            return Answer(found, patches=patches_for(self, found, None))
        answer = self._decided_anew(hold) if hold.verdict.code in CAUSES else Answer(found)
        more = (*unhealthy_gpus(hold), *queue.preempted_for(self.evidence, self.subject))
        finding = msgspec.structs.replace(answer.finding, evidence=(*answer.finding.evidence, *more))
        patches = answer.patches or patches_for(self, finding, answer.analysis)
        return msgspec.structs.replace(answer, finding=finding, patches=patches)

    def _decided_anew(self, hold: Hold) -> Answer:
        """The engine's hold; of what its nodes refuse, what they show, for the first pod that none takes."""
        if (queueing := queueing_finding(hold)) is not None:
            return Answer(queueing)
        for pod in self.templates if hold.verdict.code in NODE_CODES else ():
            answer = self.unplaced_answer(pod, None, 1)
            if answer.finding.code not in ("NONE", "WRONG_SCHEDULER"):
                return answer
        return Answer(engine_finding(hold))

    def held_finding(self) -> Finding | None:
        """The engine's hold of queued work, where the queue's controller has written no condition."""
        if not queue.is_queued(self.subject) or not self.knows_queues or self.explained_hold is None:
            return None
        is_invalid = self.explained_hold.verdict.code == "INVALID_OBJECT"
        return engine_finding(self.explained_hold) if is_invalid else queueing_finding(self.explained_hold)

    def _incomplete(self) -> Finding | None:
        """The engine holds it because members of its gang are missing."""
        is_incomplete = self.decided_hold is not None and self.decided_hold.verdict.code == "GANG_INCOMPLETE"
        return queueing_finding(self.explained_hold) if is_incomplete and self.explained_hold is not None else None

    @property
    def knows_queues(self) -> bool:
        """Whether the evidence covers queues; if not, a queue may exist without being in the evidence."""
        return self.evidence.has_kind("LocalQueue") and self.evidence.has_kind("ClusterQueue")

    def _first_that_fails(self, waiting: Sequence[ClusterObject]) -> Answer:
        """The first waiting pod that no node takes; else all of them together, which may not fit though each does."""
        pods = [item.decoded for item in waiting if isinstance(item.decoded, Pod)]
        if not pods:
            return self._by_events(waiting[0])
        judged: list[Pod] = []
        for item in waiting:
            pod = item.decoded
            if isinstance(pod, Pod) and not any(_is_alike(pod, judged_pod) for judged_pod in judged):
                answer = self.unplaced_answer(pod, item, sum(_is_alike(pod, other) for other in pods))
                if answer.finding.code not in ("NONE", "WRONG_SCHEDULER"):
                    return self._partly_running(answer)
                judged.append(pod)
        sibling = self._sibling(pods)
        if sibling is not None:
            return sibling
        pods = [without_card_parts(pod) for pod in pods] if registered_cards(self.evidence) else pods
        placed = self.fit.count_placeable(pods)
        if placed < len(pods):
            return self._not_all_fit(pods, placed)
        return self._if_overdue(self._behind_others(answer), waiting[0])

    def _sibling(self, pods: list[Pod]) -> Answer | None:
        """A gang member outside the subject that no node takes, where the subject's own pods would fit."""
        for item in gang.waiting_members(self.evidence, self.subject):
            if not isinstance(item.decoded, Pod):
                continue
            pods.append(item.decoded)
            answer = self.unplaced_answer(item.decoded, item, 1)
            found = answer.finding
            if found.code not in ("NONE", "WRONG_SCHEDULER"):
                message = f"its gang waits for {item.title}, which finds no node"
                gang_waits = Finding("GANG_INCOMPLETE", message)
                cause = msgspec.structs.replace(
                    found, headline=f"{message}: {found.message}", contributing=("GANG_INCOMPLETE", *found.contributing)
                )
                return msgspec.structs.replace(answer, finding=cause, links=(gang_waits, *answer.links), patches=())
        return None

    def _behind_others(self, answer: Answer) -> Answer:
        """A node has enough free, but the engine gives it to workloads ahead in the queue."""
        if (
            answer.finding.code != "NONE"
            or self.explained_hold is None
            or self.explained_hold.verdict.code not in CAUSES
        ):
            return answer
        found = queueing_finding(self.explained_hold)
        if found is None:
            taken = "nodes have enough free now, but workloads ahead of it get that first"
            code = self.explained_hold.verdict.code
            found = Finding(code, taken) if code in CAPACITY_CODES else engine_finding(self.explained_hold)
        return Answer(found, answer.analysis)

    def _if_overdue(self, answer: Answer, item: ClusterObject) -> Answer:
        """That a node would take it is no answer if its scheduler has refused it, or not looked at it, for long."""
        refused = nested_string(find_condition(item.data, "PodScheduled"), "status") == "False"
        created = parse_timestamp(item.created) if item.created else 0
        waited = self.now - max(created, self._last_change())
        untouched = is_untouched(self.evidence, item) and self.now - created >= DECIDES_WITHIN
        if answer.finding.code != "NONE" or not (refused or untouched):
            return answer
        if refused and waited < DECIDES_WITHIN:
            doubt = "its scheduler has refused it, and may not have checked it again since"
            return msgspec.structs.replace(answer, is_certain=False, doubt=doubt)
        said = latest_words(self.evidence, item)
        fits = answer.finding.message.split(";")[0]
        message = f"{fits} as far as the evidence shows, but it has waited {format_duration(waited)}"
        if untouched:
            message = f"{fits}, but no scheduler has said anything about it in {format_duration(self.now - created)}"
        proof = (f"its scheduler says: {said}",) if said else ()
        pod = f"-n {item.namespace} {item.name}"
        missing = [MissingEvidence("what its scheduler says", f"kubectl describe pod {pod}")]
        if nested_maps(item.data, "spec", "volumes"):
            missing.append(MissingEvidence("its volumes", f"kubectl get pvc,pv -n {item.namespace} -o wide"))
        name = nested_string(item.data, "spec", "schedulerName") or DEFAULT_SCHEDULERS[0]
        missing.append(MissingEvidence("its scheduler's log", f"kubectl logs -n kube-system -l component={name}"))
        return msgspec.structs.replace(answer, finding=Finding("UNKNOWN", message, proof, missing=tuple(missing)))

    def _last_change(self) -> int:
        """When a node came or changed its state last: its scheduler may not have looked again since."""
        moments = [node.metadata.creation_timestamp for node in self.evidence.nodes.values()]
        items = self.evidence.of_kind("Node")
        rows = (row for item in items for row in nested_maps(item.data, "status", "conditions"))
        moments += [nested_string(row, "lastTransitionTime") for row in rows]
        return max((parse_timestamp(moment) for moment in moments if moment), default=0)

    def _not_all_fit(self, pods: Sequence[Pod], placed: int) -> Answer:
        pod = pods[placed]
        analysis = unschedulable.analyze_pod(self.evidence, self.fit, pod, len(pods))
        message = f"only {placed} of its {len(pods)} waiting pods find a node at the same time"
        code = self._cause_on_nodes(pod, len(pods))
        if code == "GPU_FULL" and self.fit.cause_code(pod, len(pods)) == "GPU_FRAGMENTED":
            code = "GPU_FRAGMENTED"  # GPU_FULL is for the whole gang; enough GPUs are free for the pods that wait
        if code == "GPU_FRAGMENTED" and analysis.devices:
            message = unschedulable.fragmentation_message(self.fit, analysis, placed)
        finding = Finding(code, message)
        nearest = self._nearest_lacks(pods[:placed], pod)
        if code == "REQUEST_EXCEEDS_CLUSTER" and nearest is not None:
            cause = Finding("CPU_MEM_INSUFFICIENT", f"{message}; {nearest}", (), (code,))
            return Answer(cause, analysis, patches_for(self, cause, analysis), (finding,))
        return Answer(finding, analysis, patches_for(self, finding, analysis))

    def _nearest_lacks(self, placed: Sequence[Pod], pod: Pod) -> str | None:
        """The CPU or memory that the nearest node lacks for the pod once the others are placed; None if it is more."""
        fits = [fit for fit in self.fit.node_fits_after(placed, pod) if _lacks_only(fit.reasons, fit.shortfall)]
        if not fits:
            return None
        nearest = min(fits, key=lambda fit: (len(fit.shortfall), sum(fit.shortfall.values()), fit.node))
        lacks = ", ".join(f"{format_amount(name, amount)} {name}" for name, amount in nearest.shortfall.items())
        return f"for pod {pod.metadata.name}, node {nearest.node} lacks {lacks} once the others are placed"

    def _partly_running(self, answer: Answer) -> Answer:
        """Part of its gang runs and holds devices, while the rest finds none."""
        analysis, found = answer.analysis, answer.finding
        part = gang.partial_gang(self.evidence, self.subject)
        if part is None or analysis is None or not analysis.devices or found.code not in NO_ROOM:
            return answer
        name, need = next(iter(analysis.devices.items()))
        able = [candidate for candidate in analysis.candidates if not candidate.permanent_codes]
        total = sum(gpu_resources(candidate.node).get(name, 0) for candidate in able)
        pods = part.running + part.waiting
        wanted, held = need * pods, need * part.running
        if wanted > total:
            message = f"{part.name} needs {wanted} {name} at the same time, and the matching nodes have {total} in all"
            cause = Finding("REQUEST_EXCEEDS_CLUSTER", message, (), (found.code, *found.contributing))
        elif queue.is_admitted(self.subject):
            message = f"{part.running} of the {pods} pods of {part.name} run and hold {held} {name}"
            message += f" while the rest waits: {found.message}"
            remedy = "make the queue's quota match what the nodes have, and start the pods of the gang together"
            cause = Finding("GANG_INCOMPLETE", message, (), (found.code, *found.contributing), remedy)
        else:
            return answer
        return msgspec.structs.replace(answer, finding=cause, links=(*answer.links, found), patches=())

    def _cause_on_nodes(self, pod: Pod, count: int) -> str:
        """The code of the engine's hold if nodes show it, else the result of the engine's rule for these pods."""
        code = self.decided_hold.verdict.code if self.decided_hold is not None else ""
        if code == "RESOURCE_NAME_MISMATCH" and registered_cards(self.evidence):
            code = ""  # the engine does not know what the extender counts
        return code if code in NODE_CODES else self.fit.cause_code(pod, count)

    def unplaced_answer(self, pod: Pod, item: ClusterObject | None, count: int) -> Answer:
        cards = registered_cards(self.evidence)
        if cards and (too_large := too_large_finding(cards, pod)) is not None:
            return Answer(too_large)
        said = latest_words(self.evidence, item) if item is not None else ""
        if cards and (foreign := foreign_parts(self.evidence, pod, said)) is not None:
            return Answer(foreign)
        pod = without_card_parts(pod) if cards else pod
        try:
            hold = self.fit.hold_reason(pod)
            analysis = unschedulable.analyze_pod(self.evidence, self.fit, pod, count)
        except InputError as error:
            return Answer(Finding(error.code or "INVALID_OBJECT", str(error)))
        if hold is not None and hold.code == "NOT_IMPLEMENTED" and item is not None:
            if (without := self._without_claims(pod, item, count)) is not None:
                return without
            message = "it uses resource claims, and the evidence does not show why they are not allocated"
            return Answer(condition_finding(self.evidence, item, message, CLAIMS_MISSING))
        if hold is not None:
            return Answer(Finding(hold.code, hold.kube_words, remedy=hold.remedy), analysis)
        if analysis.feasible:
            return self._feasible(analysis, item)
        symptom = with_rollout(self.evidence, self._cause_finding(analysis), analysis, item)
        hypotheses = collect_hypotheses(self.evidence, self.subject, symptom, analysis, item, self.now)
        found = conclude(symptom, hypotheses)
        cause = found.cause
        if cause is symptom:
            cause = with_contributing(self.evidence, self.subject, symptom, analysis)
        links = found.links if found.cause is symptom else (symptom, *found.links)
        patches = patches_for(self, cause, analysis)
        # Where nodes come and go, that no node does is only half of the story.
        is_half = item is not None and cause.code in FIXED_BY_NEW_NODE and autoscaler.is_silent(self.evidence, item)
        other_words = disagreement(self.evidence, item, symptom.code) if item is not None else ""
        if item is not None and cause.code == "TAINT_NOT_TOLERATED":
            other_words = other_words or autoscaler.other_reason(self.evidence, item)
        is_certain = found.is_certain and not is_half and not other_words
        return Answer(cause, analysis, patches, links, found.ruled_out, is_certain, other_words)

    def _without_claims(self, pod: Pod, item: ClusterObject, count: int) -> Answer | None:
        """What keeps the pod off every node even if its claims are left out; None if a node would take it then."""
        if not pod.spec.resource_claims:
            return None
        answer = self.unplaced_answer(without_claims(self.evidence, pod, item), item, count)
        return None if answer.finding.code in ("NONE", "UNKNOWN", "WRONG_SCHEDULER") else answer

    def _cause_finding(self, analysis: SchedulingAnalysis) -> Finding:
        """What the nodes show; the engine's own message where no node shows the engine's cause."""
        code = self._cause_on_nodes(analysis.pod, analysis.count)
        if analysis.candidates:
            found = unschedulable.explain_cause(self.evidence, self.fit, analysis, code)
            is_shown = found.code != code or any(code in candidate.codes for candidate in analysis.candidates)
        else:
            found = no_candidate_finding(self.evidence, analysis)
            is_shown = found.code != "RESOURCE_NAME_MISMATCH" or code == found.code
        if is_shown or self.decided_hold is None or self.decided_hold.verdict.code != code:
            return found
        return found if self.explained_hold is None else engine_finding(self.explained_hold)

    def _feasible(self, analysis: SchedulingAnalysis, item: ClusterObject | None) -> Answer:
        """At least one node would take it now."""
        name = analysis.pod.spec.scheduler_name
        if (absent := scheduler_finding(self.evidence, name, item, self.now)) is not None:
            finding = absent
        elif item is not None and (unseen := storage_finding(self.evidence, item)) is not None:
            finding = unseen
        elif (failing := unprovisioned_claim(self.evidence, analysis.pod)) is not None:
            message = f"claim {failing[0]} gets no volume: {innermost(failing[1])}"
            where = f"-n {analysis.pod.metadata.namespace} {failing[0]}"
            remedy = f"mend what its provisioner names: kubectl describe pvc {where}"
            proof = (f"event of PersistentVolumeClaim {failing[0]}: {failing[1]}",)
            finding = Finding("STORAGE_INSUFFICIENT", message, proof, remedy=remedy)
        elif item is not None and not sees_all_pods(self.evidence):
            message = "nothing that you may see blocks it, but the nodes also run pods that you may not see"
            finding = condition_finding(self.evidence, item, message)
        else:
            finding = Finding(
                "NONE", f"node {analysis.feasible[0]} would take it now; its scheduler has not decided yet"
            )
        return Answer(finding, analysis, patches_for(self, finding, analysis))

    def _by_events(self, item: ClusterObject) -> Answer:
        """The evidence has no nodes: only the autoscaler, a refusal or the scheduler's condition can name a cause."""
        scaling = autoscaler.autoscaler_finding(self.evidence, item, "", False)
        if scaling is not None:
            return Answer(scaling)
        refused = refusal.reported_cause(self.evidence, self.subject, self.now)
        if refused is not None:
            return Answer(refused.cause, links=refused.links, is_certain=refused.is_certain)
        if self.explained_hold is not None:
            return Answer(engine_finding(self.explained_hold))
        message = "the pod is pending, but the evidence has no Nodes: collect it as a user that may list nodes"
        return Answer(condition_finding(self.evidence, item, message))


def _lacks_only(reasons: Sequence[Reason], shortfall: Mapping[str, int]) -> bool:
    """Whether only CPU or memory is missing."""
    return set(shortfall) <= {"cpu", "memory"} and all(reason.name.startswith("INSUFFICIENT_") for reason in reasons)


def _is_alike(pod: Pod, other: Pod) -> bool:
    """Whether the pods have the same spec, labels and annotations that decide where they go, so that one answer holds
    for both."""
    if pod.spec != other.spec or pod.metadata.labels != other.metadata.labels:
        return False
    return placement_marks(pod) == placement_marks(other)


def _gated(item: ClusterObject) -> Finding | None:
    gates = [nested_string(gate, "name") for gate in nested_maps(item.data, "spec", "schedulingGates")]
    if not gates:
        return None
    return Finding("SCHEDULING_GATED", f"{item.title} has the scheduling gate {', '.join(gates)}")


def _unbound(item: ClusterObject, said: str) -> Finding:
    """A scheduler has chosen a node, and binding the pod to it fails for a reason that is not known."""
    missing = MissingEvidence("its events", f"kubectl describe pod -n {item.namespace} {item.name}")
    return Finding("UNKNOWN", f"its scheduler has chosen a node, but binding fails: {said}", missing=(missing,))
