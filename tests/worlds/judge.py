"""What must never be wrong in a world, computed again from the objects alone, after every change of every object.

Quota and requests are added up by `tests.invariants.judge`, which shares nothing with the engine. The scheduler sees
the world a little late: what it does counts as wrong only if it was wrong in every state of the last seconds.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tests.invariants.judge import Books, Usage, asked
from tests.invariants.objects import QUEUE
from tests.worlds.draw_world import GANG_GRACE_SECONDS, GPU

from windlass.model.times import parse_timestamp
from windlass.model.unstructured import Unstructured

if TYPE_CHECKING:
    from tests.worlds.play import Report
    from tests.worlds.virtual_cluster import VirtualCluster

LAG_SECONDS = 15.0
"""How late the scheduler may know of a change: watches lag, decisions take time, requests are sent again."""
QUEUE_KINDS = ("clusterqueues", "cohorts", "resourceflavors", "localqueues")
KINDS = {
    "clusterqueues": "ClusterQueue",
    "cohorts": "Cohort",
    "resourceflavors": "ResourceFlavor",
    "localqueues": "LocalQueue",
}
GROUP_NAME, GROUP_SIZE = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
ENDED = ("Succeeded", "Failed")


class Judge:
    def __init__(self, cluster: VirtualCluster, report: Report) -> None:
        self._cluster, self._report = cluster, report
        self._objects: dict[str, dict[str, Unstructured]] = defaultdict(dict)
        self._books: deque[tuple[float, Books]] = deque([(0.0, Books(()))])
        self._allocatable: dict[str, deque[tuple[float, Counter[str], bool]]] = defaultdict(deque)
        self._usage: Usage = {}
        self._evictions: Counter[str] = Counter()
        self._quiet_since = 0.0
        self.log: deque[str] = deque(maxlen=4000)
        for node in cluster.client.list("nodes"):
            self._on_change("nodes", "ADDED", node, None)
        cluster.client.subscribe_all(self._on_change)

    def note(self, text: str) -> None:
        self.log.append(f"{time.time() % 100_000:10.3f} {text}")

    def wrong(self, text: str) -> None:
        self.note(f"WRONG: {text}")
        if len(self._report.problems) < 20:
            self._report.problems.append(f"at {time.time() % 100_000:.3f}: {text}")

    # After every change

    def _on_change(self, resource: str, event: str, new: Unstructured, old: Unstructured | None) -> None:
        kind = resource.partition(".")[0]
        meta = new["metadata"]
        key = f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else meta["name"]
        if event == "DELETED":
            self._objects[kind].pop(key, None)
        else:
            self._objects[kind][key] = {**new, "kind": KINDS.get(kind, "")}
        if kind in QUEUE_KINDS:
            trees = [tree for name in QUEUE_KINDS for tree in self._objects[name].values()]
            self._books.append((time.time(), Books(trees)))
            self._usage = self._used()
        elif kind == "workloads":
            self._check_workload(key, new, old)
        elif kind == "nodes":
            self._remember_node(new)
        elif kind == "pods":
            self._check_pod(key, event, new, old)

    def _check_workload(self, key: str, new: Unstructured, old: Unstructured | None) -> None:
        before, after = _admission(old or {}), _admission(new)
        if bool(before) != bool(after):
            self.note(f"{key} {'admitted' if after else 'no longer admitted'}")
            self._report.counts["admissions" if after else "withdrawals"] += 1
        was, is_now = (_condition(tree, "Evicted") for tree in (old or {}, new))
        if is_now == "True" and was != "True":
            self._evictions[key] += 1
            self._report.counts["evicted workloads"] += 1
            self.note(f"{key} evicted: {_message(new, 'Evicted')}")
        self._check_quota(key)

    def _check_quota(self, key: str) -> None:
        before, after = self._usage, self._used()
        self._usage = after
        found: list[str] = []
        for books in self._recent_books():
            found = books.pushed_over(before, after)
            if not found:
                return
        self.wrong(f"{key} pushes quota over: {'; '.join(found)}")

    def _recent_books(self) -> list[Books]:
        horizon = time.time() - LAG_SECONDS
        while len(self._books) > 1 and self._books[1][0] < horizon:
            self._books.popleft()
        return [books for _, books in self._books]

    def _used(self) -> Usage:
        workloads = {
            key: tree
            for key, tree in self._objects["workloads"].items()
            if _admission(tree) and _condition(tree, "Finished") != "True"
        }
        return self._books[-1][1].usage(workloads, self._alive_pods(), self._objects["nodes"])

    def _alive_pods(self) -> list[Unstructured]:
        return [pod for pod in self._objects["pods"].values() if pod.get("status", {}).get("phase") not in ENDED]

    def _remember_node(self, node: Unstructured) -> None:
        amounts = Counter({name: int(raw) for name, raw in node["status"]["allocatable"].items() if str(raw).isdigit()})
        accepts = not node["spec"].get("unschedulable") and not node["spec"].get("taints")
        history = self._allocatable[node["metadata"]["name"]]
        history.append((time.time(), amounts, accepts))
        while len(history) > 1 and history[1][0] < time.time() - LAG_SECONDS:
            history.popleft()

    def _check_pod(self, key: str, event: str, new: Unstructured, old: Unstructured | None) -> None:
        status = new.get("status", {})
        was_bound = bool((old or {}).get("spec", {}).get("nodeName"))
        node = new["spec"].get("nodeName", "")
        if event != "DELETED" and node and not was_bound:
            self._report.counts["binds"] += 1
            self.note(f"{key} bound to {node}")
            self._check_node(key, node)
            self._check_apart(key, new)
            if QUEUE in new["metadata"].get("labels", {}):
                self._check_quota(key)
            return
        if (
            status.get("reason")
            and status.get("phase") == "Failed"
            and (old or {}).get("status", {}).get("phase") != "Failed"
        ):
            self._check_rejection(key, node, status)
        if "deletionTimestamp" in new["metadata"] and "deletionTimestamp" not in (old or new)["metadata"]:
            self.note(f"{key} is deleted ({event}) {_message(new, 'DisruptionTarget')}")
            if _condition(new, "DisruptionTarget") == "True":
                self._evictions[key] += 1
                self._report.counts["evicted pods"] += 1
        if QUEUE in new["metadata"].get("labels", {}):
            self._usage = self._used()

    def _check_rejection(self, key: str, node: str, status: Unstructured) -> None:
        self._report.counts[f"pods failed: {status['reason']}"] += 1
        rejected = status["reason"] == "UnexpectedAdmissionError" or status["reason"].startswith("OutOf")
        history = [amounts for _, amounts, _ in self._allocatable[node]]
        if rejected and all(amounts == history[0] for amounts in history):
            self.wrong(f"the kubelet of {node} rejects {key}: {status['reason']}: {status.get('message')}")

    def _check_node(self, key: str, node: str) -> None:
        history = self._allocatable[node]
        if not any(accepts for _, _, accepts in history):
            self.wrong(f"{key} is bound to {node}, which takes no pods")
        used: Counter[str] = Counter()
        for pod in self._alive_pods():
            if pod["spec"].get("nodeName") == node:
                used += asked(pod)
        for name in ("cpu", GPU):
            most = max((amounts[name] for _, amounts, _ in history), default=0)
            if used[name] > most * 1000:
                self.wrong(f"{key} is bound to {node}: {used[name]} of {most * 1000} {name}")

    def _check_apart(self, key: str, pod: Unstructured) -> None:
        """Required anti-affinity holds between any two pods, whichever came first."""
        for other in self._alive_pods():
            if other["metadata"]["name"] == pod["metadata"]["name"] or not other["spec"].get("nodeName"):
                continue
            for one, two in ((pod, other), (other, pod)):
                for term in _anti_affinity(one):
                    labels = two["metadata"].get("labels", {})
                    selected = term["labelSelector"]["matchLabels"].items() <= labels.items()
                    where = [self._label(each["spec"]["nodeName"], term["topologyKey"]) for each in (one, two)]
                    if selected and where[0] and where[0] == where[1]:
                        self.wrong(
                            f"{key} is bound beside {other['metadata']['name']} in {where[0]}, which a rule forbids"
                        )

    def _label(self, node: str, key: str) -> str:
        return str(self._objects["nodes"].get(node, {"metadata": {"labels": {}}})["metadata"]["labels"].get(key, ""))

    # At rest

    def begin_quiet(self) -> None:
        self.note("quiet from here on")
        self._quiet_since = time.time()
        self._evictions.clear()

    def check_at_rest(self) -> None:
        for key, count in self._evictions.items():
            if count > 2:
                self.wrong(f"{key} was evicted {count} times while nothing happened")
        self._check_said()
        self._check_gangs()
        self._check_conservation()

    def _check_said(self) -> None:
        for key, pod in self._objects["pods"].items():
            waits = not pod["spec"].get("nodeName") and pod["status"]["phase"] == "Pending" and not _gates(pod)
            if waits and _condition(pod, "PodScheduled") != "False":
                self.wrong(f"nothing is said about {key}, which waits")
        for key, tree in self._objects["workloads"].items():
            waits = not _admission(tree) and _condition(tree, "Finished") != "True"
            if waits and _condition(tree, "QuotaReserved") != "False":
                self.wrong(f"nothing is said about Workload {key}, which waits")

    def _check_gangs(self) -> None:
        groups: dict[str, list[Unstructured]] = defaultdict(list)
        for pod in self._objects["pods"].values():
            name = pod["metadata"].get("labels", {}).get(GROUP_NAME)
            if name:
                groups[name].append(pod)
        for name, pods in groups.items():
            size = int(pods[0]["metadata"]["annotations"][GROUP_SIZE])
            started = sum(1 for pod in pods if pod["spec"].get("nodeName"))
            if len(pods) == size and 0 < started < size:
                self.wrong(f"group {name} runs partly: {started} of {size}")
        for key, tree in self._objects["workloads"].items():
            if not _admission(tree) or _condition(tree, "Finished") == "True":
                continue
            pods = self._pods_of(tree)
            waiting = [pod for pod in pods if not pod["spec"].get("nodeName") and _age(pod) > 3 * GANG_GRACE_SECONDS]
            if waiting or (not pods and _age(tree) > 3 * GANG_GRACE_SECONDS and self._admitted_for(tree) > 60):
                said = _message(waiting[0], "PodScheduled") if waiting else "it has no pods"
                self.wrong(f"Workload {key} is admitted, but {len(waiting)} of its {len(pods)} pods wait: {said}")

    def _admitted_for(self, tree: Unstructured) -> float:
        return time.time() - _condition_time(tree, "Admitted")

    def _pods_of(self, workload: Unstructured) -> list[Unstructured]:
        owners = {one["uid"] for one in workload["metadata"].get("ownerReferences", ())}
        return [
            pod
            for pod in self._alive_pods()
            if owners & {one["uid"] for one in pod["metadata"].get("ownerReferences", ())}
        ]

    def _check_conservation(self) -> None:
        """The head of each queue starts if it is within nominal quota and fits, and so does a pod in no queue."""
        free = self._free()
        books = self._books[-1][1]
        for pod in self._alive_pods():
            labels = pod["metadata"].get("labels", {})
            if pod["spec"].get("nodeName") or QUEUE in labels or "app" in labels or _owner_kind(pod) == "Job":
                continue
            need = asked(pod)
            fits = [node for node, amounts in free.items() if _fits(need, amounts)]
            if fits:
                self._held(f"pod {pod['metadata']['name']}", f"fits on {fits[0]}", _message(pod, "PodScheduled"))
        queues_with_pods = {
            books.local.get(pod["metadata"].get("labels", {}).get(QUEUE, ""))
            for pod in self._alive_pods()
            if not pod["spec"].get("nodeName")
        }
        # Pods and groups without a Workload may be ahead of the first Workload of their queue.
        for queue in books.queues.keys() - queues_with_pods:
            waiting = [
                tree
                for tree in self._objects["workloads"].values()
                if not _admission(tree)
                and _condition(tree, "Finished") != "True"
                and tree["spec"].get("active", True)
                and books.local.get(tree["spec"]["queueName"]) == queue
            ]
            head = min(waiting, key=_order, default=None)
            if head is not None:
                self._check_head(queue, head, books, free)

    def _check_head(self, queue: str, head: Unstructured, books: Books, free: dict[str, Counter[str]]) -> None:
        pod_set = head["spec"]["podSets"][0]
        need = asked({"metadata": {}, "spec": pod_set["template"]["spec"]})
        count = pod_set["count"]
        if pod_set.get("topologyRequest") or "topologyName" in str(books.flavors):
            return
        for group in books.queues[queue]["resourceGroups"]:
            for one in group["flavors"]:
                cell = (one["name"], GPU)
                used = self._usage.get(queue, Counter())[cell]
                nominal, _, _ = books.quota(queue, cell)
                wanted = need[GPU] * count
                above = all(
                    books.cohort_usage(cohort, cell, self._usage) + wanted <= books.cohort_capacity(cohort, cell)
                    for cohort in books.chain(queue)
                )
                labels = books.flavors[one["name"]].get("nodeLabels", {})
                room = sum(
                    min(amounts[name] // need[name] for name in need if need[name])
                    for node, amounts in free.items()
                    if all(self._label(node, key) == value for key, value in labels.items())
                )
                if used + wanted <= nominal and above and room >= count:
                    what = f"head {head['metadata']['name']} of {queue}"
                    self._held(what, f"fits in flavor {one['name']}", _message(head, "QuotaReserved"))

    def _held(self, what: str, why: str, said: str) -> None:
        if "planned" in said or "would delay" in said or "holds it" in said:
            self._report.counts["held for a plan"] += 1
            return
        self.wrong(f"{what} waits although it {why}: {said}")

    def _free(self) -> dict[str, Counter[str]]:
        """What is left on every node that takes pods, in thousandths."""
        left = {}
        for name, node in self._objects["nodes"].items():
            if self._allocatable[name] and self._allocatable[name][-1][2]:
                left[name] = Counter(
                    {key: int(raw) * 1000 for key, raw in node["status"]["allocatable"].items() if str(raw).isdigit()}
                )
        for pod in self._alive_pods():
            where = pod["spec"].get("nodeName")
            if where in left:
                left[where].subtract(asked(pod))
        return left


def _admission(tree: Unstructured) -> Unstructured | None:
    return (tree.get("status") or {}).get("admission")


def _conditions(tree: Unstructured) -> Iterable[Unstructured]:
    return (tree.get("status") or {}).get("conditions") or ()


def _condition(tree: Unstructured, kind: str) -> str:
    return next((one["status"] for one in _conditions(tree) if one["type"] == kind), "")


def _message(tree: Unstructured, kind: str) -> str:
    return next((str(one.get("message", "")) for one in _conditions(tree) if one["type"] == kind), "")


def _seconds(text: str) -> float:
    return float(parse_timestamp(text))


def _condition_time(tree: Unstructured, kind: str) -> float:
    return next((_seconds(one["lastTransitionTime"]) for one in _conditions(tree) if one["type"] == kind), 0.0)


def _age(tree: Unstructured) -> float:
    return time.time() - _seconds(tree["metadata"]["creationTimestamp"])


def _gates(pod: Unstructured) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _owner_kind(pod: Unstructured) -> str:
    return next((one["kind"] for one in pod["metadata"].get("ownerReferences", ())), "")


def _anti_affinity(pod: Unstructured) -> list[Unstructured]:
    rules = pod["spec"].get("affinity", {}).get("podAntiAffinity", {})
    return list(rules.get("requiredDuringSchedulingIgnoredDuringExecution", ()))


def _fits(need: Counter[str], amounts: Counter[str]) -> bool:
    return all(amounts[name] >= amount for name, amount in need.items())


def _order(tree: Unstructured) -> tuple[int, str, str]:
    evicted = next((one["lastTransitionTime"] for one in _conditions(tree) if one["type"] == "Evicted"), "")
    created = tree["metadata"]["creationTimestamp"]
    return -int(tree["spec"].get("priority", 0)), evicted or created, tree["metadata"]["name"]
