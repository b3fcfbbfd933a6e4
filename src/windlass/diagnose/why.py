"""`why`: one answer about one thing, from all the evidence. The main path of diagnosis.

    subject ─► refused? ─► queued? ─► a pod with a node? ─► no node: gates, gang, nodes, autoscaler, stack ─► verdict

Called by the command with evidence from a dump. The first stage that finds a cause names it; what else is true
contributes. Where the evidence can't carry a cause, the answer says what is missing instead of the likeliest guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.diagnose import autoscale, behind, gang, queue, refusal, schedule, start, tree
from windlass.diagnose.claims import claim_finding
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Diagnosis, Finding, Link, Missing, NodeAccount, Outlook, Patch
from windlass.diagnose.holders import gpu_holders
from windlass.diagnose.nodes import is_lost
from windlass.diagnose.outlook import engine_finding, held_finding
from windlass.diagnose.patches import patches_for
from windlass.diagnose.published import CLAIMS, published_finding, sees_all_pods, unseen_finding
from windlass.diagnose.quota import quota_finding
from windlass.diagnose.schedule import Scheduling
from windlass.diagnose.subject import Subject, find_subject, node_of, phase_of
from windlass.diagnose.things import thing_finding
from windlass.diagnose.vocabulary import CAUSES
from windlass.diagnose.whatif import WhatIf
from windlass.dump.configuration import Configuration
from windlass.model.errors import InputError
from windlass.model.pod import Pod
from windlass.placement.explain.advisor import ABOUT_NODES

DEFAULT_SCHEDULERS = ("default-scheduler", "windlass")
MANY_NODES = 1_000
"""Nodes from which on nobody's end is looked for where none is known."""
OF_ROOM = ("GPU_FULL", "GPU_FRAGMENTED", "CPU_MEM_INSUFFICIENT", "POD_COUNT_LIMIT", "EPHEMERAL_STORAGE")
"""What the engine holds a pod for where nodes are too full."""
NODE_CODES = ABOUT_NODES | {"GPU_FRAGMENTED"}
"""What the engine holds something for where nodes refuse it."""
OWN_PACE = ("IMAGE_PULL_SLOW", "GPU_NOT_YET_ADVERTISED", "SCHEDULING_GATED")
"""Waits that are over when they are over: nobody's end brings them about."""


class Answer(msgspec.Struct, frozen=True):
    """What the stages came to."""

    finding: Finding
    seen: Scheduling | None = None
    patches: tuple[Patch, ...] = ()


def why(
    evidence: Evidence, question: str, namespace: str, now: int, configuration: Configuration | None = None
) -> Diagnosis:
    """Raises `InputError` where the question names nothing that the evidence has.

    Without a configuration, what the scheduler of the subject has published is used, else the defaults.
    """
    inquiry = Inquiry(evidence, find_subject(evidence, question, namespace), now, configuration)
    return inquiry.diagnosis()


class Inquiry(WhatIf):
    """One question, and the way to its answer."""

    def diagnosis(self) -> Diagnosis:
        answer = self._answer()
        finding, seen = self._not_less_than_the_engine(answer.finding), answer.seen
        accounts: tuple[NodeAccount, ...] = (
            schedule.accounts(self.fit, seen, finding.code) if seen is not None else ()
        )
        holders = gpu_holders(self.evidence, self.fit, seen) if seen is not None and accounts else ()
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

    def _not_less_than_the_engine(self, finding: Finding) -> Finding:
        """Where the engine holds it, there is a cause, even if nothing was found that stands behind it; unless all
        that the engine says is that it can't judge."""
        if finding.code not in ("NONE", "UNKNOWN") or self.held is None:
            return finding
        if self.held.verdict.code not in CAUSES or self.held.verdict.code == "NOT_IMPLEMENTED":
            return finding
        if self.held.verdict.code == "KUEUE_QUEUE_MISSING" and not self._knows_queues:
            return finding
        return held_finding(self.held) or engine_finding(self.held)

    def _chain(self, finding: Finding) -> tuple[Link, ...]:
        deepest = Link(finding.code, finding.said, finding.evidence)
        hold = self.held
        if hold is None:
            return (deepest,)
        said = hold.verdict.message
        if hold.verdict.code == finding.code:
            return (Link(finding.code, said, finding.evidence),)
        return (Link(hold.verdict.code, said), deepest)

    def _confidence(self, finding: Finding) -> str:
        return "low" if finding.code == "UNKNOWN" or finding.missing or self._hidden() else "high"

    def _outlook(self, finding: Finding) -> Outlook | None:
        """When it may start, where it waits for others to end and nothing is wrong."""
        if not CAUSES[finding.code].is_wait or finding.code in OWN_PACE or not self.evidence.nodes:
            return None
        alone = [pod for pod in self.subject.pods if len(self.subject.pods) == 1]
        if alone and len(self.evidence.nodes) > MANY_NODES and not self.engine.knows_ends():
            return self.engine.place_in_line(f"{alone[0].namespace}/{alone[0].name}")
        return self.engine.outlook(self.hold) if self.hold is not None else None

    def _hidden(self) -> tuple[Missing, ...]:
        """What the caller may not see, so that the answer can't rest on it."""
        return tuple(
            Missing(
                f"not visible to you: {what}", f"kubectl auth can-i list {what.split(':')[0].split()[0]} -A"
            )
            for what in self.evidence.hidden
        ) + tuple(Missing(what, command) for what, command in self.evidence.unanswered)

    def _answer(self) -> Answer:
        thing = thing_finding(self.evidence, self.subject.item, self.now)
        if thing is not None:
            return Answer(thing)
        faults = [refusal.object_fault(item) for item in (*self.subject.pods[:1], self.subject.item)]
        fault = next((one for one in faults if one is not None), None)
        if fault is not None:
            return Answer(fault, patches=patches_for(self, fault, None))
        if not self.subject.pods:
            return self._without_pods()
        placed = [pod for pod in self.subject.pods if node_of(pod)]
        waiting = self.subject.pending
        if waiting:
            return self._waiting(waiting)
        return self._placed(placed)

    # No pod exists

    def _without_pods(self) -> Answer:
        for finding in (
            refusal.said_refusal(self.evidence, self.subject),
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
            return Answer(_unknown(f"{self.subject.title} has no pods, and nothing says why", self.subject))
        return self._would_run(self.templates)

    def _would_run(self, templates: Sequence[Pod]) -> Answer:
        """What became of its pods is not known; whether they would find a node is."""
        if not self.evidence.nodes:
            return Answer(_unknown(f"{self.subject.title} has no pods, and nothing says why", self.subject))
        for pod in templates:
            answer = self._unplaced(pod, None, 1)
            if answer.finding.code != "NONE":
                return answer
        if self.hold is not None and self.hold.verdict.code in CAUSES:
            return Answer(engine_finding(self.hold))
        said = f"{self.subject.title} has no pods, and nothing says why; its pods would find a node"
        return Answer(_unknown(said, self.subject))

    # Pods that have a node, or are over

    def _placed(self, pods: Sequence[Item]) -> Answer:
        best: Finding | None = None
        for pod in pods[:50] or self.subject.pods[:50]:
            found = start.start_finding(self.evidence, pod, self.now)
            if found is not None and found.code not in ("UNKNOWN", "APP_ERROR"):
                return Answer(found, patches=patches_for(self, found, None))
            best = best or found
        if best is not None:
            return Answer(best)
        loop = queue.queue_finding(self.evidence, self.subject)
        if loop is not None:
            return Answer(loop)
        for pod in pods[:50]:
            found = start.running_note(self.evidence, pod)
            if found is not None:
                return Answer(found, patches=patches_for(self, found, None))
        for pod in pods[:50]:
            node = self.evidence.nodes.get(node_of(pod))
            if node is not None and phase_of(pod) in ("Running", "Pending", "Unknown") and is_lost(node):
                return Answer(Finding("NODE_UNSCHEDULABLE", f"its node {node.name} is {is_lost(node)}"))
        starting = [pod for pod in pods if phase_of(pod) == "Pending"]
        if starting:
            return Answer(Finding("NONE", f"{starting[0].title} is starting on node {node_of(starting[0])}"))
        phases = ", ".join(sorted({phase_of(pod) or "unknown" for pod in self.subject.pods}))
        return Answer(Finding("NONE", f"nothing is wrong: {self.subject.title} is {phases}"))

    # Pods that wait for a node

    def _waiting(self, waiting: Sequence[Item]) -> Answer:
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
        """What the engine holds queued work for, where the queue's controller has said nothing."""
        if not queue.is_queued(self.subject) or not self._knows_queues or self.hold is None:
            return None
        return held_finding(self.hold)

    def _incomplete(self) -> Finding | None:
        """The engine waits for members of its gang."""
        is_incomplete = self.held is not None and self.held.verdict.code == "GANG_INCOMPLETE"
        return held_finding(self.hold) if is_incomplete and self.hold is not None else None

    @property
    def _knows_queues(self) -> bool:
        """Else a queue that is missing may only be missing in the evidence."""
        return self.evidence.knows("LocalQueue") and self.evidence.knows("ClusterQueue")

    def _first_that_fails(self, waiting: Sequence[Item]) -> Answer:
        """Of the pods that wait, the one that can't be placed; together they may lack room where each would fit."""
        pods = [item.value for item in waiting if isinstance(item.value, Pod)]
        if not pods:
            return self._by_events(waiting[0])
        judged: list[Pod] = []
        for item in waiting:
            pod = item.value
            if isinstance(pod, Pod) and not any(_is_alike(pod, one) for one in judged):
                answer = self._unplaced(pod, item, sum(_is_alike(pod, one) for one in pods))
                if answer.finding.code not in ("NONE", "WRONG_SCHEDULER"):
                    return answer
                judged.append(pod)
        sibling = self._sibling(pods)
        if sibling is not None:
            return sibling
        placed = self.fit.place_all(pods)
        if placed < len(pods):
            return self._together(pods, placed)
        return self._behind_others(answer)

    def _making_room(self, item: Item) -> Finding | None:
        """A node is chosen for it, and pods there are on their way out."""
        nominated = tree.text(item.data, "status", "nominatedNodeName")
        going = [
            pod.title
            for pod in self.evidence.pods_on(nominated)
            if tree.text(pod.data, "metadata", "deletionTimestamp")
        ]
        if not going:
            return None
        said = f"room is being made on node {nominated}: {', '.join(going[:3])} still going"
        return Finding("WAITING_FOR_PREEMPTION", said)

    def _sibling(self, pods: list[Pod]) -> Answer | None:
        """A member of its gang that can't be placed, where the subject's own pods could."""
        for item in gang.waiting_siblings(self.evidence, self.subject):
            if not isinstance(item.value, Pod):
                continue
            pods.append(item.value)
            answer = self._unplaced(item.value, item, 1)
            found = answer.finding
            if found.code not in ("NONE", "WRONG_SCHEDULER"):
                said = f"its gang waits for {item.title}, which finds no node: {found.said}"
                more = (found.code, *found.contributing)
                gang_waits = Finding("GANG_INCOMPLETE", said, found.evidence, more, found.to_do)
                return Answer(gang_waits, answer.seen)
        return None

    def _behind_others(self, answer: Answer) -> Answer:
        """A node has room, and the engine gives it to those who come before."""
        if answer.finding.code != "NONE" or self.hold is None or self.hold.verdict.code not in CAUSES:
            return answer
        found = held_finding(self.hold)
        if found is None:
            taken = "there is room now, but it goes to those who wait before it"
            code = self.hold.verdict.code
            found = Finding(code, taken) if code in OF_ROOM else engine_finding(self.hold)
        return Answer(found, answer.seen)

    def _together(self, pods: Sequence[Pod], placed: int) -> Answer:
        pod = pods[placed]
        seen = schedule.look(self.evidence, self.fit, pod, len(pods))
        said = f"{placed} of its {len(pods)} waiting pods would find a node, all of them together don't"
        code = self._cause_on_nodes(pod, len(pods))
        if code == "GPU_FULL" and self.fit.cause(pod, len(pods)) == "GPU_FRAGMENTED":
            code = "GPU_FRAGMENTED"  # for the whole there is too little; for those that wait, only in pieces
        if code == "GPU_FRAGMENTED":
            said += f": {schedule.pieces(self.fit, seen)}"
        finding = Finding(code, said)
        return Answer(finding, seen, patches_for(self, finding, seen))

    def _cause_on_nodes(self, pod: Pod, count: int) -> str:
        """What the engine holds the subject for where that is about nodes; else, by its rule, what these pods lack."""
        code = self.held.verdict.code if self.held is not None else ""
        return code if code in NODE_CODES else self.fit.cause(pod, count)

    def _unplaced(self, pod: Pod, item: Item | None, count: int) -> Answer:
        try:
            hold = self.fit.hold(pod)
            seen = schedule.look(self.evidence, self.fit, pod, count)
        except InputError as error:
            return Answer(Finding(error.code or "INVALID_OBJECT", str(error)))
        if hold is not None and hold.code == "NOT_IMPLEMENTED" and item is not None:
            said = "its devices are claimed, and nothing shows what is wrong with the claims"
            return Answer(published_finding(self.evidence, item, said, CLAIMS))
        if hold is not None:
            return Answer(Finding(hold.code, hold.kube, remedy=hold.remedy), seen)
        if seen.feasible:
            return self._feasible(seen, item)
        finding = self._weighed(seen)
        finding = behind.overruled(self.evidence, self.subject, finding, seen, item, self.now)
        return Answer(finding, seen, patches_for(self, finding, seen))

    def _weighed(self, seen: Scheduling) -> Finding:
        """What the nodes show; where they show nothing of what the engine holds it for, the engine's own words."""
        code = self._cause_on_nodes(seen.pod, seen.count)
        if seen.candidates:
            found = schedule.weigh(self.evidence, self.fit, seen, code)
            is_shown = any(code in (*one.fixed, *one.room) for one in seen.candidates) or found.code != code
        else:
            found = behind.no_candidate(self.evidence, seen, self.now)
            is_shown = found.code != "RESOURCE_NAME_MISMATCH" or code == found.code
        if is_shown or self.held is None or self.held.verdict.code != code:
            return found
        return engine_finding(self.held)

    def _feasible(self, seen: Scheduling, item: Item | None) -> Answer:
        """A node would take it now."""
        name = seen.pod.spec.scheduler_name
        if name not in DEFAULT_SCHEDULERS and not _scheduler_runs(self.evidence, name):
            finding = Finding("WRONG_SCHEDULER", f"no scheduler called {name} shows itself in the cluster")
        elif item is not None and (unseen := unseen_finding(self.evidence, item)) is not None:
            finding = unseen
        elif item is not None and not sees_all_pods(self.evidence):
            said = "of the pods that you may see none stands in its way, and others use the nodes, too"
            finding = published_finding(self.evidence, item, said)
        else:
            finding = Finding(
                "NONE", f"node {seen.feasible[0]} would take it now; its scheduler has not got to it yet"
            )
        return Answer(finding, seen, patches_for(self, finding, seen))

    def _by_events(self, item: Item) -> Answer:
        """No node objects: only what the events say, and that is not enough for a cause that objects would show."""
        scaling = autoscale.autoscaler_finding(self.evidence, item, "", False)
        if scaling is not None:
            return Answer(scaling)
        refused = refusal.said_refusal(self.evidence, self.subject)
        if refused is not None:
            return Answer(refused)
        said = "it waits for a node, and the evidence has no nodes"
        return Answer(published_finding(self.evidence, item, said))


def _is_alike(one: Pod, other: Pod) -> bool:
    """Whether they ask for the same, so that one answer does for both."""
    return one.spec == other.spec and one.metadata.labels == other.metadata.labels


def _gated(item: Item) -> Finding | None:
    gates = [tree.text(gate, "name") for gate in tree.rows(item.data, "spec", "schedulingGates")]
    if not gates:
        return None
    return Finding("SCHEDULING_GATED", f"{item.title} has the scheduling gate {', '.join(gates)}")


def _scheduler_runs(evidence: Evidence, name: str) -> bool:
    """A lease, or a pod, of that name."""
    leases = any(name in lease.name for lease in evidence.of_kind("Lease"))
    return leases or any(name in pod.name for pod in evidence.of_kind("Pod"))


def _is_done(item: Item) -> bool:
    done = [
        tree.condition(item.data, kind)
        for kind in ("Complete", "SuccessCriteriaMet", "Finished", "Succeeded")
    ]
    return any(tree.text(one, "status") == "True" for one in done)


def _unknown(said: str, subject: Subject) -> Finding:
    item = subject.item
    where = f"-n {item.namespace} " if item.namespace else ""
    command = f"kubectl get events {where}--field-selector involvedObject.name={item.name}"
    return Finding("UNKNOWN", said, missing=(Missing(f"the events of {item.title}", command),))
