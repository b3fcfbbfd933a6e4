"""`why`: one answer about one thing, from all the evidence. The main path of diagnosis.

    subject ─► refused? ─► queued? ─► a pod with a node? ─► no node: gates, gang, nodes, autoscaler, stack ─► verdict

Called by the command with evidence from a dump. The first stage that finds a cause names it; what else is true
contributes. Where the evidence can't carry a cause, the answer says what is missing instead of the likeliest guess.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.diagnose import autoscale, gang, nodes, queue, refusal, schedule, stack, start, tree
from windlass.diagnose.claims import claim_finding
from windlass.diagnose.evidence import Evidence, Item
from windlass.diagnose.finding import Diagnosis, Finding, Missing, NodeAccount, Patch
from windlass.diagnose.fit import Fit
from windlass.diagnose.holders import gpu_holders
from windlass.diagnose.patches import patches_for
from windlass.diagnose.quota import quota_finding, quota_key_finding
from windlass.diagnose.schedule import Scheduling
from windlass.diagnose.subject import Subject, find_subject, node_of, phase_of, template_pods
from windlass.diagnose.vocabulary import CAUSES
from windlass.model.errors import InputError
from windlass.model.pod import Pod

DEFAULT_SCHEDULERS = ("default-scheduler", "windlass")


class Answer(msgspec.Struct, frozen=True):
    """What the stages came to."""

    finding: Finding
    seen: Scheduling | None = None
    patches: tuple[Patch, ...] = ()


def why(evidence: Evidence, question: str, namespace: str, now: int) -> Diagnosis:
    """Raises `InputError` where the question names nothing that the evidence has."""
    inquiry = Inquiry(evidence, find_subject(evidence, question, namespace), now)
    return inquiry.diagnosis()


class Inquiry:
    """One question, and the way to its answer."""

    def __init__(self, evidence: Evidence, subject: Subject, now: int) -> None:
        self.evidence, self.subject, self.now = evidence, subject, now
        self._fit: Fit | None = None

    @property
    def fit(self) -> Fit:
        """Made when a node is looked at for the first time: most of the cost of an answer."""
        if self._fit is None:
            self._fit = Fit(self.evidence.objects, self.now)
        return self._fit

    def diagnosis(self) -> Diagnosis:
        answer = self._answer()
        finding, seen = answer.finding, answer.seen
        accounts: tuple[NodeAccount, ...] = schedule.accounts(self.fit, seen) if seen is not None else ()
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
            patches=answer.patches,
            missing_evidence=(*finding.missing, *self._hidden()),
        )

    def _hidden(self) -> tuple[Missing, ...]:
        """What the caller may not see, so that the answer can't rest on it."""
        return tuple(
            Missing(
                f"not visible to you: {what}", f"kubectl auth can-i list {what.split(':')[0].split()[0]} -A"
            )
            for what in self.evidence.hidden
        )

    def _answer(self) -> Answer:
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
            gang.gang_finding(self.evidence, self.subject),
            quota_finding(self.evidence, self.subject),
        ):
            if finding is not None:
                return Answer(finding, patches=patches_for(self, finding, None))
        templates, _ = template_pods(self.subject.item)
        if _is_done(self.subject.item):
            return Answer(Finding("NONE", f"{self.subject.title} has ended"))
        if not templates:
            return Answer(_unknown(f"{self.subject.title} has no pods, and nothing says why", self.subject))
        return self._would_run(templates)

    def _would_run(self, templates: Sequence[Pod]) -> Answer:
        """What became of its pods is not known; whether they would find a node is."""
        if not self.evidence.nodes:
            return Answer(_unknown(f"{self.subject.title} has no pods, and nothing says why", self.subject))
        for pod in templates:
            answer = self._unplaced(pod, None, 1)
            if answer.finding.code != "NONE":
                return answer
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
                return Answer(found)
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
            _gated(item),
            gang.gang_finding(self.evidence, self.subject),
            claim_finding(self.evidence, item),
        ):
            if finding is not None:
                return Answer(finding, patches=patches_for(self, finding, None))
        if not self.evidence.nodes:
            return self._by_events(item)
        return self._first_that_fails(waiting)

    def _first_that_fails(self, waiting: Sequence[Item]) -> Answer:
        """Of the pods that wait, the one that can't be placed; together they may lack room where each would fit."""
        pods = [item.value for item in waiting if isinstance(item.value, Pod)]
        if not pods:
            return self._by_events(waiting[0])
        for item in waiting:
            if isinstance(item.value, Pod):
                answer = self._unplaced(item.value, item, _alike(item.value, pods))
                if answer.finding.code not in ("NONE", "WRONG_SCHEDULER"):
                    return answer
        placed = self.fit.place_all(pods)
        if placed < len(pods):
            return self._together(pods, placed)
        return answer

    def _together(self, pods: Sequence[Pod], placed: int) -> Answer:
        pod = pods[placed]
        seen = schedule.look(self.evidence, self.fit, pod, len(pods))
        name, need = next(iter(seen.devices.items()), ("", 0))
        free = (
            sum(max(0, self.fit.free(one.node.name, name)) for one in seen.candidates if not one.fixed)
            if name
            else 0
        )
        said = f"{placed} of its {len(pods)} waiting pods would find a node, all of them together don't"
        if name and free >= need * len(pods):
            most = max(self.fit.free(one.node.name, name) for one in seen.candidates)
            said += f": {free} {name} are free, but at most {most} on one node, and each pod needs {need}"
            finding = Finding("GPU_FRAGMENTED", said)
        else:
            finding = Finding("GPU_FULL", said)
        return Answer(finding, seen, patches_for(self, finding, seen))

    def _unplaced(self, pod: Pod, item: Item | None, count: int) -> Answer:
        try:
            hold = self.fit.hold(pod)
            seen = schedule.look(self.evidence, self.fit, pod, count)
        except InputError as error:
            return Answer(Finding(error.code or "INVALID_OBJECT", str(error)))
        if hold is not None:
            finding = Finding(hold.code, hold.kube, remedy=hold.remedy)
            return Answer(finding, seen)
        if seen.feasible:
            return self._feasible(seen, item)
        finding = schedule.weigh(self.evidence, self.fit, seen) or self._no_candidate(seen)
        finding = self._overruled(finding, seen, item)
        return Answer(finding, seen, patches_for(self, finding, seen))

    def _feasible(self, seen: Scheduling, item: Item | None) -> Answer:
        """A node would take it now."""
        name = seen.pod.spec.scheduler_name
        nominated = tree.text(item.data, "status", "nominatedNodeName") if item is not None else ""
        if nominated:
            finding = Finding("WAITING_FOR_PREEMPTION", f"room is being made on node {nominated}")
        elif name not in DEFAULT_SCHEDULERS and not _scheduler_runs(self.evidence, name):
            finding = Finding("WRONG_SCHEDULER", f"no scheduler called {name} shows itself in the cluster")
        else:
            finding = Finding(
                "NONE", f"node {seen.feasible[0]} would take it now; its scheduler has not got to it yet"
            )
        return Answer(finding, seen, patches_for(self, finding, seen))

    def _no_candidate(self, seen: Scheduling) -> Finding:
        """No node has the devices that are asked for: are there GPUs that nobody advertises?"""
        name = next(iter(seen.devices), "")
        for node in nodes.gpu_nodes(self.evidence):
            found = stack.node_findings(self.evidence, node, self.now, name)
            if found:
                first = found[0]
                more = [one.code for one in found[1:]]
                more += _besides(seen, node.name)
                return msgspec.structs.replace(first, contributing=(*first.contributing, *more))
        advertised = sorted(
            {key for node in self.evidence.nodes.values() for key in nodes.gpu_resources(node)}
        )
        said = (
            f"; the cluster has {', '.join(advertised)}" if advertised else ", and none looks like a GPU node"
        )
        besides = min((_besides(seen, one.node.name) for one in seen.others), key=len, default=[])
        return Finding(
            "RESOURCE_NAME_MISMATCH", f"no node advertises {name}{said}", contributing=tuple(besides)
        )

    def _overruled(self, finding: Finding, seen: Scheduling, item: Item | None) -> Finding:
        """Causes that stand behind the one that the nodes show."""
        if finding.code == "SELECTOR_MISMATCH":
            labels = stack.labels_missing(self.evidence, seen.pod)
            if labels is not None:
                return labels
        fresh = self._behind_full(finding, seen)
        if fresh is not None:
            return fresh
        scaling = (
            autoscale.autoscaler_finding(self.evidence, item, next(iter(seen.devices), "")) if item else None
        )
        if scaling is not None and finding.code in SCALABLE:
            return msgspec.structs.replace(scaling, contributing=(*scaling.contributing, finding.code))
        keys = quota_key_finding(self.evidence, seen.pod)
        if keys is not None:
            return msgspec.structs.replace(finding, contributing=(*finding.contributing, keys.code))
        return finding

    def _behind_full(self, finding: Finding, seen: Scheduling) -> Finding | None:
        """The advertised GPUs are full, while a GPU node of the cluster advertises none."""
        if finding.code not in ("GPU_FULL", "GPU_FRAGMENTED", "REQUEST_EXCEEDS_CLUSTER"):
            return None
        name = next(iter(seen.devices), "")
        silent = [node for node in nodes.gpu_nodes(self.evidence) if not nodes.gpu_resources(node)]
        for node in silent:
            for found in stack.node_findings(self.evidence, node, self.now, name):
                more = (finding.code, *_besides(seen, node.name))
                return msgspec.structs.replace(found, contributing=(*found.contributing, *more))
        return None

    def _by_events(self, item: Item) -> Answer:
        """No node objects: only what the events say, and that is not enough for a cause that objects would show."""
        scaling = autoscale.autoscaler_finding(self.evidence, item, "")
        if scaling is not None:
            return Answer(scaling)
        refused = refusal.said_refusal(self.evidence, self.subject)
        if refused is not None:
            return Answer(refused)
        said = "it waits for a node, and the evidence has no nodes"
        events = [
            event.message for event in self.evidence.events_of(item) if event.reason == "FailedScheduling"
        ]
        missing = (
            Missing("the nodes", "kubectl get nodes -o json"),
            Missing("all pods", "kubectl get pods -A -o json"),
        )
        return Answer(Finding("UNKNOWN", said, tuple(events[-1:]), missing=missing))


SCALABLE = (
    "GPU_FULL",
    "GPU_FRAGMENTED",
    "SELECTOR_MISMATCH",
    "RESOURCE_NAME_MISMATCH",
    "CPU_MEM_INSUFFICIENT",
    "REQUEST_EXCEEDS_CLUSTER",
    "POD_COUNT_LIMIT",
    "DEVICE_PLUGIN_ABSENT",
    "NODE_UNSCHEDULABLE",
)
"""Causes that a new node would cure, so that the autoscaler's word stands before them."""


def _besides(seen: Scheduling, node: str) -> list[str]:
    """What would keep the pod off the node even if it advertised its GPUs."""
    for one in seen.others:
        if one.node.name == node:
            return [code for code in one.fixed if code != "REQUEST_EXCEEDS_CLUSTER"]
    return []


def _alike(pod: Pod, pods: Sequence[Pod]) -> int:
    return sum(one.spec.containers == pod.spec.containers for one in pods)


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
