"""What a scenario expects, held against what is there: one `Check` an expectation, with what was seen instead.

`player` calls `check` once everything that is due at a moment has been decided and carried out. Workloads are seen as
the engine's own grouping sees them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from windlass.cluster.store import ASSIGNED_DEVICES
from windlass.model.decision import Evict, Hold
from windlass.model.quota import MILLI_PER_GPU, quota_requests
from windlass.model.workload import Workload
from windlass.simulate.scenario.cluster_shorthand import GPU, level_label
from windlass.simulate.scenario.messages import format_evict, format_hold, format_nodes
from windlass.simulate.scenario.outcome import Check
from windlass.simulate.scenario.simulated_cluster import SimulatedCluster, namespaced_name
from windlass.simulate.scenario.spec import EvictedCheck, Expect, HeldCheck, RunningCheck


class ObservedState(msgspec.Struct, frozen=True):
    """Everything that expectations may look at."""

    cluster: SimulatedCluster
    now: int
    workloads: Mapping[str, Workload]
    holds: Mapping[str, Hold]
    evictions: Sequence[Evict]
    finished: frozenset[str]
    notes: Sequence[str]

    def pods_by_node(self, workload: Workload) -> Counter[str]:
        """Node → pods of the workload."""
        keys = [key for one in workload.pod_sets for key in one.pod_keys]
        nodes = (self.cluster.get("Pod", key)["spec"].get("nodeName", "") for key in keys)
        return Counter(node for node in nodes if node)

    def domain(self, node: str, label: str) -> str:
        tree = self.cluster.get("Node", node)
        return str(tree["metadata"].get("labels", {}).get(label, f"{node} (without {label})"))

    def pods_by_domain(self, places: Mapping[str, int], name: str) -> Counter[str]:
        """Domain of that level → pods."""
        found: Counter[str] = Counter()
        for node, pods in places.items():
            found[self.domain(node, level_label(name))] += pods
        return found

    def is_running(self, workload: Workload) -> bool:
        return workload.admission is not None and self.pods_by_node(workload).total() >= required_pods(
            workload
        )

    def describe(self, key: str) -> str:
        """What can be said of a workload, in a few words."""
        hold, workload = self.holds.get(key), self.workloads.get(key)
        if workload is not None and workload.admission is not None:
            places = self.pods_by_node(workload)
            held = f"; held, {format_hold(hold)}" if hold is not None else ""
            where = f" on {format_nodes(dict(places))}" if places else ""
            return f"{places.total()} of {required_pods(workload)} pods run{where}{held}"
        if hold is not None:
            return f"held, {format_hold(hold)}"
        if key in self.finished:
            return "it has ended"
        return "it waits and nothing is said about it" if workload is not None else "it is not there"


def required_pods(workload: Workload) -> int:
    """Pods with which it counts as running."""
    if workload.min_pods is not None:
        return workload.min_pods
    if workload.kind == "Workload" and workload.admission is not None:
        return sum(one.count for one in workload.admission.assignments)
    return sum(one.count for one in workload.pod_sets)


def check_expectations(expect: Expect, seen: ObservedState) -> Iterator[Check]:
    """Every expectation but `rest`, which needs further rounds."""
    for running in expect.running:
        yield _running(RunningCheck(workload=running) if isinstance(running, str) else running, seen)
    for held in expect.held:
        yield _held(HeldCheck(workload=held) if isinstance(held, str) else held, seen)
    evicted = [EvictedCheck(workload=one) if isinstance(one, str) else one for one in expect.evicted]
    for one in evicted:
        yield _evicted(one, seen)
    yield from _unexpected(evicted, seen)
    for name in expect.finished:
        key = namespaced_name(name)
        yield _checked(seen, f"{name} has ended", key in seen.finished, seen.describe(key))
    for name in expect.gone:
        key = namespaced_name(name)
        there = key in seen.workloads and seen.workloads[key].active
        yield _checked(seen, f"{name} is gone", not there, seen.describe(key))
    for node, gpus in expect.free.items():
        free = free_gpus(seen.cluster, node)
        yield _checked(seen, f"{node} has {gpus} GPUs free", free == gpus, f"{free} are free")
    for fragment in expect.notes:
        said = any(fragment in note for note in seen.notes)
        yield _checked(
            seen, f"it is said that “{fragment}”", said, "; ".join(seen.notes) or "nothing is said"
        )


def _checked(seen: ObservedState, what: str, ok: bool, instead: str) -> Check:
    return Check(seen.now, what, ok, "" if ok else instead)


def _running(wanted: RunningCheck, seen: ObservedState) -> Check:
    key = namespaced_name(wanted.workload)
    workload = seen.workloads.get(key)
    what = f"{wanted.workload} runs{_where(wanted)}"
    if workload is None or not seen.is_running(workload):
        return Check(seen.now, what, False, seen.describe(key))
    wrong = "; ".join(_misplaced(wanted, workload, seen))
    return _checked(seen, what, not wrong, wrong)


def _where(wanted: RunningCheck) -> str:
    parts = []
    if wanted.pods is not None:
        parts.append(f"with {wanted.pods} pods")
    if wanted.nodes:
        nodes = wanted.nodes if isinstance(wanted.nodes, dict) else dict.fromkeys(wanted.nodes, 1)
        parts.append(f"on {format_nodes(nodes)}")
    if wanted.within:
        parts.append(f"within one {wanted.within}")
    parts += [f"across {count} {name} domains" for name, count in wanted.across.items()]
    if wanted.slices is not None:
        parts.append(f"in slices of {wanted.slices.size} within a {wanted.slices.within}")
    if wanted.flavor:
        parts.append(f"as {wanted.flavor}")
    if wanted.devices:
        parts.append(f"on GPU {', '.join(map(str, wanted.devices))}")
    return "".join(f" {part}" for part in parts)


def _misplaced(wanted: RunningCheck, workload: Workload, seen: ObservedState) -> Iterator[str]:
    places = seen.pods_by_node(workload)
    where = f"it runs on {format_nodes(dict(places))}"
    if wanted.pods is not None and places.total() != wanted.pods:
        yield f"it runs with {places.total()} pods"
    if isinstance(wanted.nodes, dict):
        if places != Counter(wanted.nodes):
            yield where
    elif wanted.nodes and set(places) != set(wanted.nodes):
        yield where
    if wanted.within and len(seen.pods_by_domain(places, wanted.within)) != 1:
        yield f"it is in {format_nodes(dict(seen.pods_by_domain(places, wanted.within)))}"
    for name, count in wanted.across.items():
        if len(seen.pods_by_domain(places, name)) != count:
            yield f"it is in {format_nodes(dict(seen.pods_by_domain(places, name)))}"
    if wanted.slices is not None:
        found = seen.pods_by_domain(places, wanted.slices.within)
        if any(pods % wanted.slices.size for pods in found.values()):
            yield f"it is in {format_nodes(dict(found))}"
    if wanted.flavor:
        assignments = workload.admission.assignments if workload.admission else ()
        flavors = sorted({flavor for one in assignments for flavor in one.flavors.values()})
        if flavors != [wanted.flavor]:
            yield f"it runs as {', '.join(flavors) or 'no flavor'}"
    if wanted.devices and _devices(workload, seen) != sorted(wanted.devices):
        yield f"it has GPU {', '.join(map(str, _devices(workload, seen))) or '(not told)'}"


def _devices(workload: Workload, seen: ObservedState) -> list[int]:
    pods = [seen.cluster.get("Pod", key) for one in workload.pod_sets for key in one.pod_keys]
    wished = [pod["metadata"].get("annotations", {}).get(ASSIGNED_DEVICES, "") for pod in pods]
    return sorted(int(index) for text in wished for index in text.split(",") if index)


def _held(wanted: HeldCheck, seen: ObservedState) -> Check:
    key = namespaced_name(wanted.workload)
    fragments = [wanted.message] if isinstance(wanted.message, str) else list(wanted.message)
    what = f"{wanted.workload} waits" + (f", {wanted.code}" if wanted.code else "")
    what += "".join(f", “{fragment}”" for fragment in fragments)
    workload, hold = seen.workloads.get(key), seen.holds.get(key)
    if hold is None or (workload is not None and seen.is_running(workload)):
        return Check(seen.now, what, False, seen.describe(key))
    said, told = format_hold(hold), hold.verdict.public_message
    ok = wanted.code in ("", hold.verdict.code) and all(fragment in said for fragment in fragments)
    if not wanted.public and not wanted.hidden:
        return _checked(seen, what, ok, seen.describe(key))
    ok = ok and all(fragment in told for fragment in wanted.public)
    ok = ok and not any(fragment in told for fragment in wanted.hidden)
    what += "".join(f", its owner is told “{fragment}”" for fragment in wanted.public)
    what += "".join(f", its owner isn't told “{fragment}”" for fragment in wanted.hidden)
    return _checked(seen, what, ok, f"{seen.describe(key)}; its owner is told: {told}")


def _evicted(wanted: EvictedCheck, seen: ObservedState) -> Check:
    what = f"{wanted.workload} was evicted"
    what += f" for {wanted.for_}" if wanted.for_ else ""
    what += f", {wanted.reason}" if wanted.reason else ""
    what += f", {wanted.pods} pods" if wanted.pods is not None else ""
    found = [one for one in seen.evictions if one.workload == namespaced_name(wanted.workload)]
    ok = any(
        (not wanted.for_ or one.for_workload == namespaced_name(wanted.for_))
        and wanted.reason in ("", one.reason)
        and wanted.pods in (None, len(one.pods))
        for one in found
    )
    instead = "; ".join(format_evict(one) for one in found) or seen.describe(namespaced_name(wanted.workload))
    return _checked(seen, what, ok, instead)


def _unexpected(wanted: Sequence[EvictedCheck], seen: ObservedState) -> Iterator[Check]:
    known = {namespaced_name(one.workload) for one in wanted}
    others = [one for one in seen.evictions if one.workload not in known]
    what = "nobody else was evicted" if wanted else "nobody was evicted"
    yield _checked(
        seen, what, not others, "; ".join(f"{one.workload}, {format_evict(one)}" for one in others)
    )


def free_gpus(cluster: SimulatedCluster, node: str) -> int:
    """Whole GPUs that no pod on the node has any of, as far as counting tells."""
    allocatable = cluster.get("Node", node)["status"].get("allocatable", {}).get(GPU, 0)
    used = sum(quota_requests(cluster.decoded("Pod", key)).get(GPU, 0) for key in cluster.pods_on(node))
    return int(allocatable) - -(-used // MILLI_PER_GPU)
