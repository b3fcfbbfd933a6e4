"""`why`: one answer about one object, from all the evidence. The main path of diagnosis.

    subject ─► refused? ─► queued? ─► a pod with a node? ─► no node: gates, gang, nodes, autoscaler, stack ─► verdict

`cli.why` calls `why` with evidence from a live cluster or a dump. What the engine or the kubelet says is a symptom;
hypotheses about what lies behind it are weighed (`hypothesis`), and the deepest that the evidence supports is named.
If the evidence is not enough, the answer names what is missing and does not guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from math import inf

import msgspec

from windlass.diagnose import gang, pod_startup, queue, refusal, unschedulable
from windlass.diagnose.attempts import current_pods
from windlass.diagnose.causes import CAUSES
from windlass.diagnose.contradictions import is_ready
from windlass.diagnose.engine_view import engine_finding, making_no_room, queueing_finding
from windlass.diagnose.evidence import ClusterObject, Event, Evidence
from windlass.diagnose.explanations import ADMINISTRATORS, CHANGED_BY
from windlass.diagnose.finding import CauseLink, Diagnosis, Finding, MissingEvidence, NodeSummary, Outlook
from windlass.diagnose.freeze_state import with_freeze
from windlass.diagnose.gpu_stack import layer_below_finding
from windlass.diagnose.holders import gpu_holders
from windlass.diagnose.hypothesis import Conclusion
from windlass.diagnose.log_patterns import LONG_LINE
from windlass.diagnose.moves import asked_finding, move_lines
from windlass.diagnose.nested_errors import innermost
from windlass.diagnose.node_words import down_words
from windlass.diagnose.nodes import down_remedy, not_ready_reason
from windlass.diagnose.operator_nodes import with_operator_notes
from windlass.diagnose.operator_reports import (
    NEW_SECONDS,
    failure_conclusion,
    is_done,
    is_kept,
    is_served,
    missing_pods,
    rests,
    unready_object_finding,
)
from windlass.diagnose.patches import patches_for, shown
from windlass.diagnose.pod_status import PULL_PATIENCE, ended_at, is_failing, stuck_finding
from windlass.diagnose.podless_objects import podless_object_finding
from windlass.diagnose.quotas import closed_queue_finding, quota_finding
from windlass.diagnose.reports import reports_about
from windlass.diagnose.scheduler_health import scheduler_finding
from windlass.diagnose.statements import worded_finding
from windlass.diagnose.subject import Subject, find_subject, node_of, phase_of, subject_of
from windlass.diagnose.suspended import suspended_part_finding
from windlass.diagnose.unstructured import find_condition, nested_string
from windlass.diagnose.waiting import Answer, WaitingInquiry
from windlass.diagnose.workload_faults import controller_fault, controllers_of, dependency_fault, named_scheduler
from windlass.dump.configuration import Configuration
from windlass.model.node import Node
from windlass.model.pod import Pod
from windlass.model.times import format_duration, parse_timestamp

LONG_START = 600
"""Seconds after which a pod with a node should have started, or something should say why not."""
MANY_NODES = 1_000
"""Above this number of nodes no start is estimated unless run times are known: the search would take seconds."""
NO_OUTLOOK_CODES = ("IMAGE_PULL_SLOW", "GPU_NOT_YET_ADVERTISED", "SCHEDULING_GATED")
"""Waits that do not depend on the end of other workloads."""


def why(
    evidence: Evidence, question: str, namespace: str, now: int, configuration: Configuration | None = None
) -> Diagnosis:
    """Raises `InputError` if the evidence has no object of that name.

    Without a configuration, the one that the subject's scheduler has published is used, else the defaults.
    """
    diagnosis = with_proposals(evidence, question, namespace, now, configuration)
    return msgspec.structs.replace(diagnosis, patches=shown(diagnosis.patches))


def with_proposals(
    evidence: Evidence, question: str, namespace: str, now: int, configuration: Configuration | None = None
) -> Diagnosis:
    """The same with all patches that are proposed, for `server_trial` to choose from."""
    return Inquiry(evidence, find_subject(evidence, question, namespace), now, configuration).diagnosis()


class Inquiry(WaitingInquiry):
    follows_peers = True
    """False for a question that is asked for another pod, so that two that blame each other end."""

    def brief(self) -> Diagnosis:
        """The cause alone, without what takes longer to find: patches, nodes, holders, an estimated start."""
        self.tries_patches = False
        answer = self._answer()
        finding = self._final_finding(answer)
        return Diagnosis(
            subject=self.subject.title,
            code=finding.code,
            contributing=(),
            headline=finding.sentence,
            is_wait=_is_wait(finding),
            confidence=self._confidence(answer, finding),
            changed_by=finding.changed_by or CHANGED_BY.get(finding.code, ""),
        )

    def diagnosis(self) -> Diagnosis:
        answer = self._answer()
        finding, analysis = self._final_finding(answer), answer.analysis
        accounts: tuple[NodeSummary, ...] = (
            unschedulable.node_summaries(self.fit, analysis, finding.code) if analysis is not None else ()
        )
        holders = gpu_holders(self.evidence, self.fit, analysis) if analysis is not None and accounts else ()
        confidence = self._confidence(answer, finding)
        return Diagnosis(
            subject=self.subject.title,
            code=finding.code,
            contributing=tuple(code for code in dict.fromkeys(finding.contributing) if code != finding.code),
            headline=finding.sentence,
            is_wait=_is_wait(finding),
            evidence=tuple(dict.fromkeys((*finding.evidence, *self._in_the_way(finding)))),
            nodes=accounts,
            holders=holders,
            outlook=self._outlook(finding),
            patches=answer.patches,
            missing_evidence=(*finding.missing, *self._hidden()),
            chain=self._chain(answer, finding),
            confidence=confidence,
            configuration=self.configuration.used,
            ruled_out=answer.ruled_out,
            doubt=answer.doubt,
            changed_by=finding.changed_by or CHANGED_BY.get(finding.code, ""),
            next_commands=self._next_commands(finding) if confidence == "low" else (),
            moves=move_lines(self.evidence, self.subject),
        )

    def _in_the_way(self, finding: Finding) -> tuple[str, ...]:
        """Why nothing makes room for what waits, as plan and event say it: budgets, priorities, refusals."""
        hold = self.explained_hold
        return making_no_room(hold) if hold is not None and hold.verdict.code == finding.code else ()

    def _final_finding(self, answer: Answer) -> Finding:
        finding = queue.with_queue_reason(self.evidence, self._fall_back_to_engine_hold(answer.finding))
        finding = queue.with_ready_timeouts(self.evidence, self.subject, finding)
        finding = with_freeze(self.evidence, self.subject, finding, self.is_windlass)
        if finding.code == "UNKNOWN" or (finding.code == "APP_ERROR" and finding.missing):
            finding = self._by_words(finding)
        candidates = answer.analysis.candidates if answer.analysis is not None else ()
        return with_operator_notes(self.evidence, finding, (candidate.node.name for candidate in candidates))

    def _by_words(self, finding: Finding) -> Finding:
        """What somebody has said about the subject, where no rule understands it."""
        found = worded_finding(self.evidence, self.subject, is_running=finding.code == "APP_ERROR")
        if found is None:
            return finding
        known = (finding.code,) if finding.code != "UNKNOWN" else ()
        missing = finding.missing or _unknown("", self.subject).missing  # words are never sure
        return msgspec.structs.replace(found, missing=missing, contributing=(*known, *finding.contributing))

    def _fall_back_to_engine_hold(self, finding: Finding) -> Finding:
        """The engine's hold, where the stages found no cause and the engine did not merely fail to judge."""
        is_over = is_done(self.subject.item) and not self.subject.pending
        if finding.code not in ("NONE", "UNKNOWN") or is_over or is_served(self.subject, self.now):
            return finding
        if self.decided_hold is None or self.explained_hold is None:
            return finding
        code = self.decided_hold.verdict.code
        if code not in CAUSES or code == "NOT_IMPLEMENTED":
            return finding
        if code == "KUEUE_QUEUE_MISSING" and not self.knows_queues:
            return finding
        return queueing_finding(self.explained_hold) or engine_finding(self.explained_hold)

    def _chain(self, answer: Answer, finding: Finding) -> tuple[CauseLink, ...]:
        """From the engine's hold over what the nodes show to the cause; each code once."""
        deepest = CauseLink(finding.code, finding.message, finding.evidence)
        hold = self.decided_hold
        if hold is not None and hold.verdict.code == finding.code:
            return (CauseLink(finding.code, hold.verdict.message, finding.evidence),)
        first = [CauseLink(hold.verdict.code, hold.verdict.message)] if hold is not None else []
        taken = {finding.code, *(link.code for link in first)}
        between = answer.links if finding.code == answer.finding.code else ()
        middle = {found.code: found for found in reversed(between) if found.code not in taken}
        shown = [CauseLink(found.code, found.message, found.evidence) for found in reversed(middle.values())]
        return (*first, *shown, deepest)

    def _confidence(self, answer: Answer, finding: Finding) -> str:
        return "high" if answer.is_certain and self._is_complete(finding) else "low"

    def _is_complete(self, finding: Finding) -> bool:
        if finding.code == "KUEUE_QUEUE_MISSING" and not finding.evidence and not self.knows_queues:
            return False  # the engine misses a queue that may not have been read
        return finding.code != "UNKNOWN" and not finding.missing and not self._hidden()

    def _next_commands(self, finding: Finding) -> tuple[str, ...]:
        """Up to three commands whose output would settle the cause."""
        missing = [entry.command for entry in (*finding.missing, *self._hidden())]
        pod = next(iter(self.subject.pods), self.subject.item)
        where = f"-n {pod.namespace} " if pod.namespace else ""
        events = f"kubectl get events {where}--sort-by=.lastTimestamp"
        usual = [f"kubectl describe {where}{pod.kind.lower()} {pod.name}", "windlass doctor cluster", events]
        if node_of(pod):
            usual.insert(1, f"windlass doctor node {node_of(pod)}")
        return tuple(dict.fromkeys([*missing, *usual]))[:3]

    def _outlook(self, finding: Finding) -> Outlook | None:
        """When it may start, where it only waits for other workloads to end."""
        if not _is_wait(finding) or finding.code in NO_OUTLOOK_CODES or not self.evidence.nodes:
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
        is_failing_kept = is_kept(self.subject.item) and any(map(is_failing, current_pods(self.subject, self.now)))
        if is_done(self.subject.item) and not self.subject.pending and not is_failing_kept:
            state = "has all its pods, and they are ready" if is_kept(self.subject.item) else "has completed"
            state = "wants no pods (replicas: 0)" if rests(self.subject.item) else state
            return Answer(Finding("NONE", f"nothing is wrong: {self.subject.title} {state}"))
        own_finding = podless_object_finding(self.evidence, self.subject.item, self.now)
        if own_finding is not None:
            return Answer(own_finding)
        faults = [refusal.object_fault(item) for item in (*self.subject.pods[:1], self.subject.item)]
        fault = next((fault for fault in faults if fault is not None), None)
        if fault is not None:
            return Answer(fault, patches=patches_for(self, fault, None))
        if not self.subject.pods:
            return self._without_pods()
        placed = [pod for pod in current_pods(self.subject, self.now) if node_of(pod)]
        waiting = self.subject.pending
        if waiting:
            return self.waiting_answer(waiting)
        return self._placed(placed)

    def _concluded(self, found: Conclusion) -> Answer:
        patches = patches_for(self, found.cause, None)
        return Answer(found.cause, None, patches, found.links, found.ruled_out, found.is_certain)

    # Subjects without pods

    def _without_pods(self) -> Answer:
        said = refusal.reported_cause(self.evidence, self.subject, self.now)
        if said is not None:
            return self._concluded(said)
        if (queued := self.queued_answer()) is not None:
            return queued
        stages: tuple[Callable[[], Finding | None], ...] = (
            lambda: gang.deadlock_finding(self.evidence, self.subject),
            lambda: quota_finding(self.evidence, self.subject),
            lambda: closed_queue_finding(self.evidence, self.subject),
            self.held_finding,
            lambda: asked_finding(self.engine.asks_for(self._keys) if self.evidence.nodes else ()),
        )
        finding = next((found for stage in stages if (found := stage()) is not None), None)
        if finding is not None:
            return Answer(finding, patches=patches_for(self, finding, None))
        failure = failure_conclusion(self.evidence, self.subject, 0, self.now)
        if failure is not None:
            return self._concluded(failure)
        if rests(self.subject.item):
            return Answer(Finding("NONE", f"nothing is wrong: {self.subject.title} is between two runs"))
        if (behind := self._unmade()) is not None:
            return Answer(behind)
        if not self.templates:
            return Answer(self._podless())
        return self._would_run(self.templates)

    def _podless(self) -> Finding:
        """No pods, and no cause that is known: what was said about it last, if anything was."""
        items = [item for item in self.subject.related if item.kind != "Workload"]
        said = reports_about(self.evidence, items, ())[:1]
        why = f"has no pods: {said[0].text}" if said else "has no pods, and no event says why"
        return _unknown(f"{self.subject.title} {why}", self.subject, tuple(report.quote for report in said))

    def _unmade(self) -> Finding | None:
        """Why its controller makes no pods: it does not work, or is told to use a scheduler that does not exist."""
        item = self.subject.item
        if self.now - (parse_timestamp(item.created) if item.created else 0) < NEW_SECONDS:
            return None
        fault = controller_fault(self.evidence, item, self.now)
        for owner in controllers_of(self.evidence, item) if fault is None else ():
            name = named_scheduler(owner)
            absent = scheduler_finding(self.evidence, name, None, self.now) if name else None
            if absent is not None:
                message = f"{owner.title} is told to use the scheduler {name}: {absent.message}"
                remedy = f"install {name}, or take it out of the arguments of {owner.title}"
                return Finding(absent.code, message, missing=absent.missing, remedy=remedy, changed_by=ADMINISTRATORS)
        return fault

    def _would_run(self, templates: Sequence[Pod]) -> Answer:
        """No pod exists and no event says why: judges pods made from the templates."""
        if not self.evidence.nodes and self.explained_hold is not None:
            return Answer(engine_finding(self.explained_hold))
        if not self.evidence.nodes:
            return Answer(self._podless())
        for pod in templates:
            answer = self.unplaced_answer(pod, None, 1)
            if answer.finding.code != "NONE":
                is_held = self.decided_hold is not None or not self.subject.item.uid
                doubt = answer.doubt or "its controller has not made the pods, which no node can have refused"
                return answer if is_held else msgspec.structs.replace(answer, is_certain=False, doubt=doubt)
        if self.explained_hold is not None and self.explained_hold.verdict.code in CAUSES:
            return Answer(engine_finding(self.explained_hold))
        message = f"{self.subject.title} has no pods, and no event says why; a node would take its pods"
        return Answer(_unknown(message, self.subject))

    # Pods that have a node, or have ended

    def _placed(self, pods: Sequence[ClusterObject]) -> Answer:
        best: Answer | None = None
        for pod in pods[:50] or self.subject.pods[:50]:
            found = pod_startup.startup_conclusion(self.evidence, pod, self.now)
            if found is None:
                continue
            cause = _with_node(found.cause, pod)
            answer = Answer(cause, None, (), found.links, found.ruled_out, found.is_certain)
            if found.cause.code not in ("UNKNOWN", "APP_ERROR"):
                return msgspec.structs.replace(answer, patches=patches_for(self, found.cause, None))
            best = best or answer
        if best is not None:
            return self._behind_program(best)
        held = queue.queue_finding(self.evidence, self.subject)
        if held is not None and (held.code == "PREEMPTION_LOOP" or not all(map(is_ready, pods))):
            return Answer(held)
        for pod in pods[:50]:
            visible = pod_startup.running_pod_finding(self.evidence, pod)
            if visible is not None:
                return Answer(visible, patches=patches_for(self, visible, None))
        for pod in pods[:50]:
            node = self.evidence.nodes.get(node_of(pod))
            if node is not None and phase_of(pod) in ("Running", "Pending", "Unknown") and not_ready_reason(node):
                return Answer(_on_lost_node(pod, node, down_words(self.evidence, node)))
        if (gone := next(filter(None, map(self._on_no_node, pods[:50])), None)) is not None:
            return Answer(gone)
        if (part := suspended_part_finding(self.evidence, self.subject, self.now)) is not None:
            return Answer(part)
        lacking = missing_pods(self.subject.item, self.subject.pods, self.now)
        failure = failure_conclusion(self.evidence, self.subject, lacking, self.now)
        if failure is not None:
            return self._concluded(failure)
        starting = [pod for pod in pods if phase_of(pod) == "Pending"]
        if (awaited := next(filter(None, map(self._awaited, starting[:50])), None)) is not None:
            return awaited
        if starting and (since := self.now - _scheduled_at(starting[0])) > LONG_START:
            message = f"{starting[0].title} was bound to node {node_of(starting[0])} {format_duration(int(since))} ago"
            warnings = [event for event in self.evidence.events_of(starting[0]) if event.warning]
            said = tuple(f"event of {starting[0].title}: {event.message}" for event in warnings[-1:])
            lack = _sandbox_lack(warnings)
            unstarted = _unknown(f"{message}, and {lack or 'has not started'}", self.subject, said)
            below = layer_below_finding(self.evidence, starting[0], self.now)
            return Answer(below or unstarted)
        if starting:
            is_new = self.now - _scheduled_at(starting[0]) < PULL_PATIENCE
            started = Finding("NONE", f"{starting[0].title} is starting on node {node_of(starting[0])}")
            return Answer(started, is_certain=is_new)
        stuck = (stuck_finding(self.evidence, pod, self.now, LONG_START) for pod in pods)
        if (found_stuck := next(filter(None, stuck), None)) is not None:
            return Answer(found_stuck)
        if (unready := unready_object_finding(self.subject, self.now)) is not None:
            return Answer(unready)
        phases = ", ".join(sorted({phase_of(pod) or "unknown" for pod in self.subject.pods}))
        return Answer(Finding("NONE", f"nothing is wrong: {self.subject.title} is {phases}"))

    def _on_no_node(self, pod: ClusterObject) -> Finding | None:
        """The node that the pod names is not among those of the cluster."""
        node, waits = node_of(pod), phase_of(pod) in ("Pending", "Unknown")
        if not waits or not self.evidence.nodes or node in self.evidence.nodes or self.settings.node_selector:
            return None
        named = find_condition(pod.data, "PodScheduled")
        by = "its manifest names it (spec.nodeName)" if not named else "it was deleted after the pod was placed there"
        message = f"there is no node {node}, on which {pod.title} should run: {by}"
        remedy = "take spec.nodeName out of the manifest and create the pod again"
        if named:
            remedy = (
                f"delete the pod, so that its owner makes it again: kubectl delete pod -n {pod.namespace} {pod.name}"
            )
        unread = MissingEvidence("all nodes", f"kubectl get node {node}")
        missing = () if "Node" in self.evidence.complete_kinds else (unread,)
        return Finding("NODE_UNSCHEDULABLE", message, remedy=remedy, missing=missing)

    def _awaited(self, pod: ClusterObject) -> Answer | None:
        """An init container runs until a sibling is up, and that finds no node or fails: the sibling's own cause."""
        container = gang.waiting_init_container(pod)
        awaited = gang.awaited_sibling(self.evidence, pod) if container else None
        if awaited is None:
            behind = dependency_fault(self.evidence, pod, self.now, container) if container else None
            return Answer(behind) if behind is not None else None
        sibling, is_leader = awaited
        answer, waits = self._ask_about(sibling), f"init container {container} of {pod.title} waits for {sibling.title}"
        link = Finding("GANG_INCOMPLETE", f"{waits}, which does not run")
        if answer.finding.code in ("NONE", "UNKNOWN"):
            return Answer(msgspec.structs.replace(link, missing=answer.finding.missing), is_certain=False)
        return _caused_by(answer, link, waits, answer.is_certain and is_leader)

    def _ask_about(self, sibling: ClusterObject) -> Answer:
        inquiry = Inquiry(self.evidence, subject_of(self.evidence, sibling), self.now, self.configuration)
        inquiry.share(self)
        inquiry.tries_patches = inquiry.follows_peers = False
        return inquiry._answer()

    def _behind_program(self, answer: Answer) -> Answer:
        """What the program's complaint is about, if that does not work: a service, or a peer that failed first."""
        for pod in self.subject.pods[:50] if self.follows_peers else ():
            fault = dependency_fault(self.evidence, pod, self.now)
            if fault is not None:
                return Answer(fault, links=(answer.finding,))
            peer = gang.failed_peer(self.evidence, pod)
            behind = self._ask_about(peer) if peer is not None else None
            if peer is not None and behind is not None and behind.finding.code not in ("NONE", "UNKNOWN", "APP_ERROR"):
                is_first = bool(ended_at(peer)) and bool(ended_at(pod))  # else nothing shows which failed first
                what = f"{pod.title} lost {peer.title}"
                return _caused_by(behind, answer.finding, what, behind.is_certain and is_first)
        return answer


def _is_wait(finding: Finding) -> bool:
    """Whether it only needs time: not where somebody is named who has to change something."""
    return CAUSES[finding.code].is_wait and not finding.changed_by


def _caused_by(behind: Answer, link: Finding, what: str, is_certain: bool) -> Answer:
    """The answer about another pod as the cause of `link`."""
    found = behind.finding
    cause = msgspec.structs.replace(
        found, headline=f"{what}: {found.message}", contributing=(link.code, *found.contributing)
    )
    return Answer(cause, None, (), (link, *behind.links), behind.ruled_out, is_certain)


def _with_node(cause: Finding, pod: ClusterObject) -> Finding:
    """The cause with the node's name, where it is the node's and no name is said."""
    if cause.headline or not node_of(pod) or CHANGED_BY.get(cause.code) != ADMINISTRATORS:
        return cause
    return msgspec.structs.replace(cause, headline=f"on node {node_of(pod)}, {cause.message}")


def _on_lost_node(pod: ClusterObject, node: Node, said: tuple[str, ...]) -> Finding:
    """A pod of a node that is not ready; one that was deleted stays until somebody confirms that it has ended."""
    message, remedy = f"its node {node.name} is {not_ready_reason(node)}", down_remedy(node)
    if nested_string(pod.data, "metadata", "deletionTimestamp"):
        message += f", so {pod.title} stays Terminating, and its owner makes no other in its place"
        remedy = (
            f"bring the node back; if it is off for good, kubectl taint node {node.name} "
            "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute, or "
            f"kubectl delete pod -n {pod.namespace} {pod.name} --force --grace-period=0"
        )
    return Finding("NODE_UNSCHEDULABLE", message, said, remedy=remedy)


def _scheduled_at(pod: ClusterObject) -> int | float:
    """When it got its node; infinity if that is not known."""
    moment = nested_string(find_condition(pod.data, "PodScheduled"), "lastTransitionTime")
    return parse_timestamp(moment) if moment else inf


def _sandbox_lack(warnings: Sequence[Event]) -> str:
    """What the sandbox of the pod lacks, if the last of the kubelet's warnings is that it can't be made."""
    if not warnings or warnings[-1].reason != "FailedCreatePodSandBox":
        return ""
    is_network = NETWORK_WORDS.search(warnings[-1].message)
    what = "its network is not set up" if is_network else "its sandbox can't be made"
    return f"{what}: {innermost(warnings[-1].message)[:LONG_LINE]}"


NETWORK_WORDS = re.compile(r"network|\bcni\b|\bip\b|multus", re.I)


def _unknown(message: str, subject: Subject, said: tuple[str, ...] = ()) -> Finding:
    item = subject.item
    where = f"-n {item.namespace} " if item.namespace else ""
    command = f"kubectl get events {where}--field-selector involvedObject.name={item.name}"
    return Finding("UNKNOWN", message, said, missing=(MissingEvidence(f"the events of {item.title}", command),))
