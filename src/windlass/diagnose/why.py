"""`why`: one answer about one object, from all the evidence. The main path of diagnosis.

    subject ─► refused? ─► queued? ─► a pod with a node? ─► no node: gates, gang, nodes, autoscaler, stack ─► verdict

`cli.why` calls `why` with evidence from a live cluster or a dump. The first stage that finds a cause names it; other
causes are listed as contributing. If the evidence is not enough, the answer names what is missing and does not guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.diagnose import autoscaler, gang, pod_startup, queue, refusal, root_causes, unschedulable
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.engine_view import engine_finding, queueing_finding
from windlass.diagnose.evidence import ClusterObject, Evidence
from windlass.diagnose.finding import (
    CauseLink,
    Diagnosis,
    Finding,
    MissingEvidence,
    NodeSummary,
    Outlook,
    Patch,
)
from windlass.diagnose.holders import gpu_holders
from windlass.diagnose.nodes import not_ready_reason
from windlass.diagnose.patches import patches_for
from windlass.diagnose.podless_objects import podless_object_finding
from windlass.diagnose.resource_claims import claim_finding
from windlass.diagnose.resource_quota import quota_finding
from windlass.diagnose.scheduler_condition import (
    CLAIMS_MISSING,
    condition_finding,
    sees_all_pods,
    storage_finding,
)
from windlass.diagnose.subject import Subject, find_subject, node_of, phase_of
from windlass.diagnose.unschedulable import SchedulingAnalysis
from windlass.diagnose.unstructured import find_condition, nested_maps, nested_string
from windlass.diagnose.what_if import WhatIf
from windlass.dump.configuration import Configuration
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.placement.explain.advisor import NODE_REFUSAL_CODES

DEFAULT_SCHEDULERS = ("default-scheduler", "windlass")
MANY_NODES = 1_000
"""Above this number of nodes no start is estimated unless run times are known: the search would take seconds."""
CAPACITY_CODES = (
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "CPU_MEM_INSUFFICIENT",
    "POD_COUNT_LIMIT",
    "EPHEMERAL_STORAGE",
)
"""Causes of a hold that go away when other pods end."""
NODE_CODES = NODE_REFUSAL_CODES | {"GPU_FRAGMENTED"}
"""Causes of a hold that nodes show."""
NO_OUTLOOK_CODES = ("IMAGE_PULL_SLOW", "GPU_NOT_YET_ADVERTISED", "SCHEDULING_GATED")
"""Waits that do not depend on the end of other workloads."""


class Answer(msgspec.Struct, frozen=True):
    finding: Finding
    analysis: SchedulingAnalysis | None = None
    patches: tuple[Patch, ...] = ()


def why(
    evidence: Evidence, question: str, namespace: str, now: int, configuration: Configuration | None = None
) -> Diagnosis:
    """Raises `InputError` if the evidence has no object of that name.

    Without a configuration, the one that the subject's scheduler has published is used, else the defaults.
    """
    inquiry = Inquiry(evidence, find_subject(evidence, question, namespace), now, configuration)
    return inquiry.diagnosis()


class Inquiry(WhatIf):
    def diagnosis(self) -> Diagnosis:
        answer = self._answer()
        finding, analysis = self._fall_back_to_engine_hold(answer.finding), answer.analysis
        accounts: tuple[NodeSummary, ...] = (
            unschedulable.node_summaries(self.fit, analysis, finding.code) if analysis is not None else ()
        )
        holders = gpu_holders(self.evidence, self.fit, analysis) if analysis is not None and accounts else ()
        cause = CAUSES[finding.code]
        return Diagnosis(
            subject=self.subject.title,
            code=finding.code,
            contributing=tuple(code for code in dict.fromkeys(finding.contributing) if code != finding.code),
            headline=finding.sentence,
            is_wait=cause.is_wait,
            evidence=finding.evidence,
            nodes=accounts,
            holders=holders,
            outlook=self._outlook(finding),
            patches=answer.patches,
            missing_evidence=(*finding.missing, *self._hidden()),
            chain=self._chain(finding),
            confidence=self._confidence(finding),
            configuration=self.configuration.used,
        )

    def _fall_back_to_engine_hold(self, finding: Finding) -> Finding:
        """The engine's hold, where the stages found no cause and the engine did not merely fail to judge."""
        if finding.code not in ("NONE", "UNKNOWN") or self.decided_hold is None or self.explained_hold is None:
            return finding
        code = self.decided_hold.verdict.code
        if code not in CAUSES or code == "NOT_IMPLEMENTED":
            return finding
        if code == "KUEUE_QUEUE_MISSING" and not self._knows_queues:
            return finding
        return queueing_finding(self.explained_hold) or engine_finding(self.explained_hold)

    def _chain(self, finding: Finding) -> tuple[CauseLink, ...]:
        deepest = CauseLink(finding.code, finding.message, finding.evidence)
        hold = self.decided_hold
        if hold is None:
            return (deepest,)
        message = hold.verdict.message
        if hold.verdict.code == finding.code:
            return (CauseLink(finding.code, message, finding.evidence),)
        return (CauseLink(hold.verdict.code, message), deepest)

    def _confidence(self, finding: Finding) -> str:
        return "low" if finding.code == "UNKNOWN" or finding.missing or self._hidden() else "high"

    def _outlook(self, finding: Finding) -> Outlook | None:
        """When it may start, where it only waits for other workloads to end."""
        if not CAUSES[finding.code].is_wait or finding.code in NO_OUTLOOK_CODES or not self.evidence.nodes:
            return None
        pods = self.subject.pods
        is_large = len(self.evidence.nodes) > MANY_NODES
        if len(pods) == 1 and is_large and not self.engine.has_known_end_times():
            return self.engine.queue_position(f"{pods[0].namespace}/{pods[0].name}")
        return self.engine.outlook(self.explained_hold) if self.explained_hold is not None else None

    def _hidden(self) -> tuple[MissingEvidence, ...]:
        """Evidence that the caller's rights do not cover, or that could not be read."""
        return tuple(
            MissingEvidence(
                f"not visible to you: {what}", f"kubectl auth can-i list {what.split(':')[0].split()[0]} -A"
            )
            for what in self.evidence.hidden
        ) + tuple(MissingEvidence(what, command) for what, command in self.evidence.failed_queries)

    def _answer(self) -> Answer:
        own_finding = podless_object_finding(self.evidence, self.subject.item, self.now)
        if own_finding is not None:
            return Answer(own_finding)
        faults = [refusal.object_fault(item) for item in (*self.subject.pods[:1], self.subject.item)]
        fault = next((fault for fault in faults if fault is not None), None)
        if fault is not None:
            return Answer(fault, patches=patches_for(self, fault, None))
        if not self.subject.pods:
            return self._without_pods()
        placed = [pod for pod in self.subject.pods if node_of(pod)]
        waiting = self.subject.pending
        if waiting:
            return self._waiting(waiting)
        return self._placed(placed)

    # Subjects without pods

    def _without_pods(self) -> Answer:
        for finding in (
            refusal.reported_refusal(self.evidence, self.subject),
            queue.queue_finding(self.evidence, self.subject),
            gang.deadlock_finding(self.evidence, self.subject),
            quota_finding(self.evidence, self.subject),
            self._held(),
        ):
            if finding is not None:
                return Answer(finding, patches=patches_for(self, finding, None))
        if _is_done(self.subject.item):
            return Answer(Finding("NONE", f"{self.subject.title} has ended"))
        if not self.templates:
            return Answer(_unknown(f"{self.subject.title} has no pods, and no event says why", self.subject))
        return self._would_run(self.templates)

    def _would_run(self, templates: Sequence[Pod]) -> Answer:
        """No pod exists and no event says why: judges pods made from the templates."""
        if not self.evidence.nodes:
            return Answer(_unknown(f"{self.subject.title} has no pods, and no event says why", self.subject))
        for pod in templates:
            answer = self._unplaced(pod, None, 1)
            if answer.finding.code != "NONE":
                return answer
        if self.explained_hold is not None and self.explained_hold.verdict.code in CAUSES:
            return Answer(engine_finding(self.explained_hold))
        message = f"{self.subject.title} has no pods, and no event says why; a node would take its pods"
        return Answer(_unknown(message, self.subject))

    # Pods that have a node, or have ended

    def _placed(self, pods: Sequence[ClusterObject]) -> Answer:
        best: Finding | None = None
        for pod in pods[:50] or self.subject.pods[:50]:
            found = pod_startup.startup_finding(self.evidence, pod, self.now)
            if found is not None and found.code not in ("UNKNOWN", "APP_ERROR"):
                return Answer(found, patches=patches_for(self, found, None))
            best = best or found
        if best is not None:
            return Answer(best)
        loop = queue.queue_finding(self.evidence, self.subject)
        if loop is not None:
            return Answer(loop)
        for pod in pods[:50]:
            found = pod_startup.running_pod_finding(self.evidence, pod)
            if found is not None:
                return Answer(found, patches=patches_for(self, found, None))
        for pod in pods[:50]:
            node = self.evidence.nodes.get(node_of(pod))
            if node is not None and phase_of(pod) in ("Running", "Pending", "Unknown") and not_ready_reason(node):
                return Answer(Finding("NODE_UNSCHEDULABLE", f"its node {node.name} is {not_ready_reason(node)}"))
        starting = [pod for pod in pods if phase_of(pod) == "Pending"]
        if starting:
            return Answer(Finding("NONE", f"{starting[0].title} is starting on node {node_of(starting[0])}"))
        phases = ", ".join(sorted({phase_of(pod) or "unknown" for pod in self.subject.pods}))
        return Answer(Finding("NONE", f"nothing is wrong: {self.subject.title} is {phases}"))

    # Pods that wait for a node

    def _waiting(self, waiting: Sequence[ClusterObject]) -> Answer:
        item = waiting[0]
        for finding in (
            queue.queue_finding(self.evidence, self.subject),
            self._held(),
            _gated(item),
            gang.deadlock_finding(self.evidence, self.subject),
            self._incomplete(),
            claim_finding(self.evidence, item),
            self._making_room(item),
        ):
            if finding is not None:
                return Answer(finding, patches=patches_for(self, finding, None))
        if not self.evidence.nodes:
            return self._by_events(item)
        return self._first_that_fails(waiting)

    def _held(self) -> Finding | None:
        """The engine's hold of queued work, where the queue's controller has written no condition."""
        if not queue.is_queued(self.subject) or not self._knows_queues or self.explained_hold is None:
            return None
        return queueing_finding(self.explained_hold)

    def _incomplete(self) -> Finding | None:
        """The engine holds it because members of its gang are missing."""
        is_incomplete = self.decided_hold is not None and self.decided_hold.verdict.code == "GANG_INCOMPLETE"
        return queueing_finding(self.explained_hold) if is_incomplete and self.explained_hold is not None else None

    @property
    def _knows_queues(self) -> bool:
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
                answer = self._unplaced(pod, item, sum(_is_alike(pod, other) for other in pods))
                if answer.finding.code not in ("NONE", "WRONG_SCHEDULER"):
                    return answer
                judged.append(pod)
        sibling = self._sibling(pods)
        if sibling is not None:
            return sibling
        placed = self.fit.count_placeable(pods)
        if placed < len(pods):
            return self._not_all_fit(pods, placed)
        return self._behind_others(answer)

    def _making_room(self, item: ClusterObject) -> Finding | None:
        """A node is nominated for it, and victims on that node are still terminating."""
        nominated = nested_string(item.data, "status", "nominatedNodeName")
        terminating = [
            pod.title
            for pod in self.evidence.pods_on(nominated)
            if nested_string(pod.data, "metadata", "deletionTimestamp")
        ]
        if not terminating:
            return None
        message = f"waiting for preempted pods on {nominated} to terminate: {', '.join(terminating[:3])}"
        return Finding("WAITING_FOR_PREEMPTION", message)

    def _sibling(self, pods: list[Pod]) -> Answer | None:
        """A gang member outside the subject that no node takes, where the subject's own pods would fit."""
        for item in gang.waiting_members(self.evidence, self.subject):
            if not isinstance(item.decoded, Pod):
                continue
            pods.append(item.decoded)
            answer = self._unplaced(item.decoded, item, 1)
            found = answer.finding
            if found.code not in ("NONE", "WRONG_SCHEDULER"):
                message = f"its gang waits for {item.title}, which finds no node: {found.message}"
                more = (found.code, *found.contributing)
                gang_waits = Finding("GANG_INCOMPLETE", message, found.evidence, more, found.effective_remedy)
                return Answer(gang_waits, answer.analysis)
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
        return Answer(finding, analysis, patches_for(self, finding, analysis))

    def _cause_on_nodes(self, pod: Pod, count: int) -> str:
        """The code of the engine's hold if nodes show it, else the result of the engine's rule for these pods."""
        code = self.decided_hold.verdict.code if self.decided_hold is not None else ""
        return code if code in NODE_CODES else self.fit.cause_code(pod, count)

    def _unplaced(self, pod: Pod, item: ClusterObject | None, count: int) -> Answer:
        try:
            hold = self.fit.hold_reason(pod)
            analysis = unschedulable.analyze_pod(self.evidence, self.fit, pod, count)
        except InputError as error:
            return Answer(Finding(error.code or "INVALID_OBJECT", str(error)))
        if hold is not None and hold.code == "NOT_IMPLEMENTED" and item is not None:
            message = "it uses resource claims, and the evidence does not show why they are not allocated"
            return Answer(condition_finding(self.evidence, item, message, CLAIMS_MISSING))
        if hold is not None:
            return Answer(Finding(hold.code, hold.kube_words, remedy=hold.remedy), analysis)
        if analysis.feasible:
            return self._feasible(analysis, item)
        finding = self._cause_finding(analysis)
        finding = root_causes.root_cause(self.evidence, self.subject, finding, analysis, item, self.now)
        return Answer(finding, analysis, patches_for(self, finding, analysis))

    def _cause_finding(self, analysis: SchedulingAnalysis) -> Finding:
        """What the nodes show; the engine's own message where no node shows the engine's cause."""
        code = self._cause_on_nodes(analysis.pod, analysis.count)
        if analysis.candidates:
            found = unschedulable.explain_cause(self.evidence, self.fit, analysis, code)
            is_shown = found.code != code or any(code in candidate.codes for candidate in analysis.candidates)
        else:
            found = root_causes.no_candidate_finding(self.evidence, analysis, self.now)
            is_shown = found.code != "RESOURCE_NAME_MISMATCH" or code == found.code
        hold = self.explained_hold
        return found if is_shown or hold is None or hold.verdict.code != code else engine_finding(hold)

    def _feasible(self, analysis: SchedulingAnalysis, item: ClusterObject | None) -> Answer:
        """At least one node would take it now."""
        name = analysis.pod.spec.scheduler_name
        if name not in DEFAULT_SCHEDULERS and not _scheduler_runs(self.evidence, name):
            finding = Finding(
                "WRONG_SCHEDULER",
                f"no scheduler named {name} runs in the cluster (no Lease and no pod of that name)",
            )
        elif item is not None and (unseen := storage_finding(self.evidence, item)) is not None:
            finding = unseen
        elif item is not None and not sees_all_pods(self.evidence):
            message = "nothing that you may see blocks it, but pods that you may not see use the nodes too"
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
        refused = refusal.reported_refusal(self.evidence, self.subject)
        if refused is not None:
            return Answer(refused)
        message = "the pod is pending, but the evidence has no nodes to judge it on"
        return Answer(condition_finding(self.evidence, item, message))


def _is_alike(pod: Pod, other: Pod) -> bool:
    """Whether the pods have the same spec and labels, so that one answer holds for both."""
    return pod.spec == other.spec and pod.metadata.labels == other.metadata.labels


def _gated(item: ClusterObject) -> Finding | None:
    gates = [nested_string(gate, "name") for gate in nested_maps(item.data, "spec", "schedulingGates")]
    if not gates:
        return None
    return Finding("SCHEDULING_GATED", f"{item.title} has the scheduling gate {', '.join(gates)}")


def _scheduler_runs(evidence: Evidence, name: str) -> bool:
    """Whether a Lease or a pod has that name."""
    leases = any(name in lease.name for lease in evidence.of_kind("Lease"))
    return leases or any(name in pod.name for pod in evidence.of_kind("Pod"))


def _is_done(item: ClusterObject) -> bool:
    done = [find_condition(item.data, kind) for kind in ("Complete", "SuccessCriteriaMet", "Finished", "Succeeded")]
    return any(nested_string(condition, "status") == "True" for condition in done)


def _unknown(message: str, subject: Subject) -> Finding:
    item = subject.item
    where = f"-n {item.namespace} " if item.namespace else ""
    command = f"kubectl get events {where}--field-selector involvedObject.name={item.name}"
    return Finding("UNKNOWN", message, missing=(MissingEvidence(f"the events of {item.title}", command),))
