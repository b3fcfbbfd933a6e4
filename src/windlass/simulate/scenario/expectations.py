"""Compares a scenario's expectations with the simulated cluster: one `Check` per expectation.

`scenario.player` calls `check_expectations` once everything that is due at a moment has been decided and executed.
Workloads are those of the engine's own grouping.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from windlass.model.decision import Evict, Hold
from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.names.windlass import DEVICES_ANNOTATION
from windlass.model.quota import MILLI_PER_GPU, quota_requests
from windlass.model.workload import Workload
from windlass.simulate.scenario.asks import SimulatedAsks
from windlass.simulate.scenario.cluster_shorthand import level_label
from windlass.simulate.scenario.messages import format_evict, format_hold, format_nodes
from windlass.simulate.scenario.outcome import Check
from windlass.simulate.scenario.simulated_cluster import SimulatedCluster, namespaced_name
from windlass.simulate.scenario.spec import EvictedCheck, Expect, HeldCheck, RunningCheck


class ObservedState(msgspec.Struct, frozen=True):
    """The state that expectations are compared with."""

    cluster: SimulatedCluster
    now: int
    workloads: Mapping[str, Workload]
    holds: Mapping[str, Hold]
    evictions: Sequence[Evict]
    finished: frozenset[str]
    notes: Sequence[str]
    asks: SimulatedAsks

    def pods_by_node(self, workload: Workload) -> Counter[str]:
        """Node → number of the workload's pods on it."""
        keys = [key for pod_set in workload.pod_sets for key in pod_set.pod_keys]
        nodes = (self.cluster.get("Pod", key)["spec"].get("nodeName", "") for key in keys)
        return Counter(node for node in nodes if node)

    def domain(self, node: str, label: str) -> str:
        tree = self.cluster.get("Node", node)
        return str(tree["metadata"].get("labels", {}).get(label, f"{node} (without {label})"))

    def pods_by_domain(self, places: Mapping[str, int], name: str) -> Counter[str]:
        """Domain of the level `name` → number of pods."""
        counts: Counter[str] = Counter()
        for node, pods in places.items():
            counts[self.domain(node, level_label(name))] += pods
        return counts

    def is_running(self, workload: Workload) -> bool:
        if workload.admission is None:
            return False
        return self.pods_by_node(workload).total() >= required_pods(workload)

    def describe(self, key: str) -> str:
        """The state of a workload, for a check that failed."""
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
        return "it waits without a verdict" if workload is not None else "it doesn't exist"


def required_pods(workload: Workload) -> int:
    """Number of bound pods with which the workload counts as running."""
    if workload.min_pods is not None:
        return workload.min_pods
    if workload.kind == "Workload" and workload.admission is not None:
        return sum(assignment.count for assignment in workload.admission.assignments)
    return sum(pod_set.count for pod_set in workload.pod_sets)


def check_expectations(expect: Expect, state: ObservedState) -> Iterator[Check]:
    """Checks every expectation but `rest`, for which `player` needs further rounds."""
    for running in expect.running:
        yield _check_running(RunningCheck(workload=running) if isinstance(running, str) else running, state)
    for held in expect.held:
        yield _check_held(HeldCheck(workload=held) if isinstance(held, str) else held, state)
    evicted = [EvictedCheck(workload=check) if isinstance(check, str) else check for check in expect.evicted]
    for check in evicted:
        yield _check_evicted(check, state)
    yield from _check_no_other_evictions(evicted, state)
    if expect.asked is not None:
        asked = sorted(key for key, workload in state.workloads.items() if state.asks.is_asked(workload))
        expected = sorted(map(namespaced_name, expect.asked))
        named = ", ".join(expect.asked) or "nothing"
        yield _check(state, f"{named} is asked for a checkpoint", asked == expected, ", ".join(asked) or "nothing is")
    for name in expect.finished:
        key = namespaced_name(name)
        yield _check(state, f"{name} has ended", key in state.finished, state.describe(key))
    for name in expect.gone:
        key = namespaced_name(name)
        there = key in state.workloads and state.workloads[key].active
        yield _check(state, f"{name} is gone", not there, state.describe(key))
    for node, gpus in expect.free.items():
        free = free_gpus(state.cluster, node)
        yield _check(state, f"{node} has {gpus} GPUs free", free == gpus, f"{free} are free")
    for fragment in expect.notes:
        is_noted = any(fragment in note for note in state.notes)
        yield _check(state, f"a note says “{fragment}”", is_noted, "; ".join(state.notes) or "no notes")


def _check(state: ObservedState, expectation: str, ok: bool, actual: str) -> Check:
    return Check(state.now, expectation, ok, "" if ok else actual)


def _check_running(expected: RunningCheck, state: ObservedState) -> Check:
    key = namespaced_name(expected.workload)
    workload = state.workloads.get(key)
    expectation = f"{expected.workload} runs{_placement_text(expected)}"
    if workload is None or not state.is_running(workload):
        return Check(state.now, expectation, False, state.describe(key))
    wrong = "; ".join(_placement_errors(expected, workload, state))
    return _check(state, expectation, not wrong, wrong)


def _placement_text(expected: RunningCheck) -> str:
    parts = []
    if expected.pods is not None:
        parts.append(f"with {expected.pods} pods")
    if expected.nodes:
        nodes = expected.nodes if isinstance(expected.nodes, dict) else dict.fromkeys(expected.nodes, 1)
        parts.append(f"on {format_nodes(nodes)}")
    if expected.within:
        parts.append(f"within one {expected.within}")
    parts += [f"across {count} {name} domains" for name, count in expected.across.items()]
    if expected.slices is not None:
        parts.append(f"in slices of {expected.slices.size} within a {expected.slices.within}")
    if expected.flavor:
        parts.append(f"as {expected.flavor}")
    if expected.devices:
        parts.append(f"on GPU {', '.join(map(str, expected.devices))}")
    return "".join(f" {part}" for part in parts)


def _placement_errors(expected: RunningCheck, workload: Workload, state: ObservedState) -> Iterator[str]:
    places = state.pods_by_node(workload)
    where = f"it runs on {format_nodes(dict(places))}"
    if expected.pods is not None and places.total() != expected.pods:
        yield f"it runs with {places.total()} pods"
    if isinstance(expected.nodes, dict):
        if places != Counter(expected.nodes):
            yield where
    elif expected.nodes and set(places) != set(expected.nodes):
        yield where
    if expected.within and len(state.pods_by_domain(places, expected.within)) != 1:
        yield f"it is in {format_nodes(dict(state.pods_by_domain(places, expected.within)))}"
    for name, count in expected.across.items():
        if len(state.pods_by_domain(places, name)) != count:
            yield f"it is in {format_nodes(dict(state.pods_by_domain(places, name)))}"
    if expected.slices is not None:
        found = state.pods_by_domain(places, expected.slices.within)
        if any(pods % expected.slices.size for pods in found.values()):
            yield f"it is in {format_nodes(dict(found))}"
    if expected.flavor:
        assignments = workload.admission.assignments if workload.admission else ()
        flavors = sorted({flavor for assignment in assignments for flavor in assignment.flavors.values()})
        if flavors != [expected.flavor]:
            yield f"it runs as {', '.join(flavors) or 'no flavor'}"
    if expected.devices and _devices(workload, state) != sorted(expected.devices):
        yield f"it has GPU {', '.join(map(str, _devices(workload, state))) or '(unknown)'}"


def _devices(workload: Workload, state: ObservedState) -> list[int]:
    pods = [state.cluster.get("Pod", key) for pod_set in workload.pod_sets for key in pod_set.pod_keys]
    assigned = [pod["metadata"].get("annotations", {}).get(DEVICES_ANNOTATION, "") for pod in pods]
    return sorted(int(index) for text in assigned for index in text.split(",") if index)


def _check_held(expected: HeldCheck, state: ObservedState) -> Check:
    key = namespaced_name(expected.workload)
    fragments = [expected.message] if isinstance(expected.message, str) else list(expected.message)
    expectation = f"{expected.workload} waits" + (f", {expected.code}" if expected.code else "")
    expectation += "".join(f", “{fragment}”" for fragment in fragments)
    workload, hold = state.workloads.get(key), state.holds.get(key)
    if hold is None or (workload is not None and state.is_running(workload)):
        return Check(state.now, expectation, False, state.describe(key))
    text, public = format_hold(hold), hold.verdict.public_message
    ok = expected.code in ("", hold.verdict.code) and all(fragment in text for fragment in fragments)
    if not expected.public and not expected.hidden:
        return _check(state, expectation, ok, state.describe(key))
    ok = ok and all(fragment in public for fragment in expected.public)
    ok = ok and not any(fragment in public for fragment in expected.hidden)
    expectation += "".join(f", its owner sees “{fragment}”" for fragment in expected.public)
    expectation += "".join(f", its owner doesn't see “{fragment}”" for fragment in expected.hidden)
    return _check(state, expectation, ok, f"{state.describe(key)}; its owner sees: {public}")


def _check_evicted(expected: EvictedCheck, state: ObservedState) -> Check:
    expectation = f"{expected.workload} was evicted"
    expectation += f" for {expected.for_}" if expected.for_ else ""
    expectation += f", {expected.reason}" if expected.reason else ""
    expectation += f", {expected.pods} pods" if expected.pods is not None else ""
    key = namespaced_name(expected.workload)
    evictions = [evict for evict in state.evictions if evict.workload == key]
    ok = any(
        (not expected.for_ or evict.for_workload == namespaced_name(expected.for_))
        and expected.reason in ("", evict.reason)
        and expected.pods in (None, len(evict.pods))
        for evict in evictions
    )
    actual = "; ".join(map(format_evict, evictions)) or state.describe(key)
    return _check(state, expectation, ok, actual)


def _check_no_other_evictions(expected: Sequence[EvictedCheck], state: ObservedState) -> Iterator[Check]:
    keys = {namespaced_name(check.workload) for check in expected}
    others = [evict for evict in state.evictions if evict.workload not in keys]
    expectation = "no other workload was evicted" if expected else "no workload was evicted"
    actual = "; ".join(f"{evict.workload}, {format_evict(evict)}" for evict in others)
    yield _check(state, expectation, not others, actual)


def free_gpus(cluster: SimulatedCluster, node: str) -> int:
    """GPUs of the node minus the requests of its pods, rounded down."""
    allocatable = cluster.get("Node", node)["status"].get("allocatable", {}).get(GPU_RESOURCE, 0)
    used = sum(quota_requests(cluster.decoded("Pod", key)).get(GPU_RESOURCE, 0) for key in cluster.pods_on(node))
    return int(allocatable) - -(-used // MILLI_PER_GPU)
