"""Plays a scenario on the virtual clock, through the production store and `decide`.

Called by `cli.scenario` and the tests. Between two moments of the timeline the clock jumps from one end of a workload
to the next. At every moment, rounds of decide and execute follow until nothing changes. Two expectations are part of
every scenario: it is stable after few rounds, and no node is ever overcommitted.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from windlass.model.errors import InputError
from windlass.model.names.kueue import QUEUE_NAME_LABEL
from windlass.model.names.windlass import LAST_CHECKPOINT_ANNOTATION, SIMULATED_DURATION_ANNOTATION
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.plan import Plan
from windlass.model.requests import format_amount, node_quantities, pod_requests
from windlass.model.times import parse_duration
from windlass.model.unstructured import Unstructured
from windlass.model.workload import Workload
from windlass.placement.explain.advisor import MAX_EXPLAINED_HOLDS
from windlass.planner import engine_config
from windlass.simulate.clock import virtual_timestamp
from windlass.simulate.driver import MAX_CYCLES, SimulationDriver
from windlass.simulate.scenario.cluster_shorthand import resource_name
from windlass.simulate.scenario.executor import (
    BEFORE_ENDS,
    ENDS,
    POD_ONLY_KINDS,
    ScenarioExecutor,
    TerminationEnd,
)
from windlass.simulate.scenario.expectations import ObservedState, check_expectations
from windlass.simulate.scenario.messages import format_hold
from windlass.simulate.scenario.object_changes import merge_patch, with_node_not_ready, with_node_ready
from windlass.simulate.scenario.outcome import Check, Event, Outcome
from windlass.simulate.scenario.simulated_cluster import (
    CLUSTER_SCOPED_KINDS,
    SimulatedCluster,
    namespaced_name,
)
from windlass.simulate.scenario.spec import ResolvedMoment, Scenario
from windlass.simulate.timeline import Timeline


def play(scenario: Scenario) -> Outcome:
    """Plays the whole scenario, whether or not its expectations hold."""
    try:
        return _Play(scenario).run()
    except InputError as error:
        line, column = scenario.position_of(error.path)
        raise error.with_context(file=scenario.file, line=line, column=column) from None


class _WorkloadEnd(msgspec.Struct, frozen=True):
    """On the timeline: a workload ends, unless it was evicted since this start."""

    workload: str
    start: int


class _Play:
    """The scenario as a script for `simulate.driver`."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        document = scenario.document
        self.outcome = Outcome(scenario.name, scenario.file, document.title, document.story)
        self._cluster = SimulatedCluster()
        self._timeline: Timeline[TerminationEnd | _WorkloadEnd | None] = Timeline()
        termination, on_round = scenario.termination, self._finish_round
        self._executor = ScenarioExecutor(self._cluster, termination, self._timeline, on_round)
        config = engine_config(scenario.settings)
        config = msgspec.structs.replace(config, max_explained_holds=MAX_EXPLAINED_HOLDS)
        self._driver = SimulationDriver(self._executor, config)
        self._steps = deque(enumerate(scenario.steps))
        self._moment: ResolvedMoment | None = None
        """The moment of the timeline that is being played; None between moments."""
        self._now = 0
        self._last_changes: list[Event] = []
        """Changes of the last plan."""
        self._last_hold_text: dict[str, str] = {}
        """Workload → text of its last logged hold."""
        self._starts: dict[str, int] = {}
        self._started: set[str] = set()
        self._finished: set[str] = set()

    def run(self) -> Outcome:
        with _error_path("objects"):
            self._submit(self._scenario.objects, 0, "there is")
        if self._scenario.steps[0].at > 0:
            self._timeline.push(0, None, BEFORE_ENDS)  # decides on the initial objects, too
        for _ in self._driver.play(self):
            pass
        return self.outcome

    # The script

    def next_event_time(self) -> int | None:
        """Ends and terminations that are due at the time of a step come before it."""
        if not self._steps:
            return None
        due = self._timeline.next_at
        at = self._steps[0][1].at
        return at if due is None else min(at, due)

    def apply_events(self, now: int) -> bool:
        self._now, self._moment = now, None
        if self._timeline.next_at is not None and self._timeline.next_at <= now:
            for _, event in self._timeline.pop_due(now):
                if isinstance(event, TerminationEnd):
                    self._log(self._executor.finish_termination(event, now))
                elif isinstance(event, _WorkloadEnd):
                    self._on_workload_end(event, now)
            return True
        index, self._moment = self._steps.popleft()
        with _error_path(f"timeline[{index}]"):
            self._apply_moment(self._moment)
        return True

    def observe(self, now: int) -> None:
        if not self._last_changes:
            self._log_holds(now)
        if self._moment is not None and self._moment.expect is not None:
            self._check_moment(self._moment)

    def on_not_converged(self, now: int, plan: Plan) -> None:
        changes = "; ".join(f"{event.kind} {event.subject} {event.text}" for event in self._last_changes)
        expectation = f"the cluster is stable within {MAX_CYCLES} rounds"
        self._log(Check(now, expectation, False, f"still changing: {changes}"))

    def _finish_round(self, events: list[Event]) -> None:
        """A plan has been executed."""
        self._last_changes = events
        self._log(*events)
        self._record_starts(self._now)
        self._check_capacity(self._now)

    # Events

    def _on_workload_end(self, end: _WorkloadEnd, now: int) -> None:
        workload = self._cluster.workloads(now).get(end.workload)
        is_current = self._starts.get(end.workload) == end.start and end.workload in self._started
        if is_current and workload is not None:
            self._finish(workload, now)

    def _apply_moment(self, step: ResolvedMoment) -> None:
        moment, now = step.moment, step.at
        if moment.say:
            self._log(Event(now, "say", "", " ".join(moment.say.split())))
        for name in moment.finish:
            self._finish(self._workload(name, now), now)
        for name in moment.delete:
            self._delete(name, now)
        for name in moment.fail:
            self._fail(name, now)
        for name in moment.repair:
            self._cluster.update(with_node_ready(self._cluster.get("Node", name)))
            self._log(Event(now, "repair", name))
        cordons = [(name, True) for name in moment.cordon] + [(name, False) for name in moment.uncordon]
        for name, cordoned in cordons:
            node = self._cluster.get("Node", name)
            self._cluster.update({**node, "spec": {**node.get("spec", {}), "unschedulable": cordoned}})
            self._log(Event(now, "cordon" if cordoned else "uncordon", name))
        for name in moment.checkpoint:
            self._checkpoint(namespaced_name(name), now)
        for name in moment.answer:
            self._log(self._executor.asks.answer(self._workload(name, now), now))
        for queue, amounts in moment.quota.items():
            self._set_quota(queue, {resource_name(name): raw for name, raw in amounts.items()}, now)
        for change in moment.change:
            kind, key = _parse_object_name(change.object)
            self._cluster.update(merge_patch(self._cluster.get(kind, key), change.merge))
            self._log(Event(now, "change", change.object, str(change.merge)))
        self._submit(step.submit, now, "submit")

    def _submit(self, objects: tuple[Unstructured, ...], now: int, verb: str) -> None:
        for obj in objects:
            key = self._cluster.create(obj, now)
            kind = obj["kind"]
            decoded = self._cluster.decoded(kind, key)
            if isinstance(decoded, OwnerObject):
                owner = owner_from_object(decoded)
                is_held = owner.suspended or QUEUE_NAME_LABEL in decoded.metadata.labels
                if not is_held and not self._cluster.pods_owned_by(kind, key) and owner.gang_count == 1:
                    self._executor.create_pods(self._cluster.get(kind, key), now)
            if verb == "submit" or kind == "Pod":
                self._log(Event(now, verb, f"{kind} {key}", obj.get("spec", {}).get("nodeName", "")))

    def _finish(self, workload: Workload, now: int) -> None:
        self._executor.finish_workload(workload, now)
        self._started.discard(workload.key)
        self._finished.add(workload.key)
        self._log(Event(now, "end", workload.key))

    def _delete(self, name: str, now: int) -> None:
        kind, key = _parse_object_name(name)
        self._cluster.get(kind, key)
        if kind == "Node":
            self._fail(key, now)
        for pod in () if kind in CLUSTER_SCOPED_KINDS else self._cluster.pods_owned_by(kind, key):
            self._cluster.delete("Pod", pod)
        self._cluster.delete(kind, key)
        self._log(Event(now, "delete", name))

    def _workload(self, name: str, now: int) -> Workload:
        workload = self._cluster.workloads(now).get(namespaced_name(name))
        if workload is None:
            raise InputError(f"there is no workload {name}")
        return workload

    def _fail(self, name: str, now: int) -> None:
        """The node fails with the pods on it; controllers recreate theirs as pending pods."""
        self._cluster.update(with_node_not_ready(self._cluster.get("Node", name)))
        self._log(Event(now, "fail", name))
        for pod in self._cluster.pods_on(name):
            self._executor.remove_pod(pod, now)

    def _checkpoint(self, key: str, now: int) -> None:
        workload = self._workload(key, now)
        patch = {"metadata": {"annotations": {LAST_CHECKPOINT_ANNOTATION: virtual_timestamp(now)}}}
        targets = [("Pod", pod) for pod_set in workload.pod_sets for pod in pod_set.pod_keys]
        if workload.kind not in POD_ONLY_KINDS:
            targets = [(workload.kind, key)]
        for kind, name in targets:
            self._cluster.update(merge_patch(self._cluster.get(kind, name), patch))
        self._log(Event(now, "checkpoint", key))

    def _set_quota(self, queue: str, amounts: dict[str, object], now: int) -> None:
        obj = merge_patch(self._cluster.get("ClusterQueue", queue), {})
        flavors = [flavor for group in obj["spec"]["resourceGroups"] for flavor in group["flavors"]]
        if len(flavors) != 1:
            raise InputError(f"ClusterQueue {queue} has {len(flavors)} flavors", remedy="use change")
        quotas = [
            {**quota, "nominalQuota": amounts.get(quota["name"], quota["nominalQuota"])}
            for quota in flavors[0]["resources"]
        ]
        group = {**obj["spec"]["resourceGroups"][0], "flavors": [{**flavors[0], "resources": quotas}]}
        self._cluster.update({**obj, "spec": {**obj["spec"], "resourceGroups": [group]}})
        self._log(Event(now, "quota", queue, ", ".join(f"{name} {raw}" for name, raw in amounts.items())))

    # The outcome

    def _log(self, *events: Event | Check) -> None:
        self.outcome.events.extend(events)

    def _record_starts(self, now: int) -> None:
        """Schedules the end of each workload that has just started, if it has a duration."""
        state = self._observed_state(now)
        running = {key for key, workload in state.workloads.items() if state.is_running(workload)}
        for key in sorted(running - self._started):
            self._starts[key] = self._starts.get(key, 0) + 1
            self._last_hold_text.pop(key, None)
            seconds = self._duration(state.workloads[key])
            if seconds is not None:
                end = _WorkloadEnd(key, self._starts[key])
                self._timeline.push(now + seconds, end, (ENDS, key, end.start))
        self._started = running

    def _duration(self, workload: Workload) -> int | None:
        has_owner = workload.kind not in POD_ONLY_KINDS
        objects = [self._cluster.find(workload.kind, workload.key)] if has_owner else []
        first_pods = [pod for pod_set in workload.pod_sets for pod in pod_set.pod_keys[:1]]
        for obj in objects + [self._cluster.find("Pod", pod) for pod in first_pods]:
            text = (obj or {}).get("metadata", {}).get("annotations", {}).get(SIMULATED_DURATION_ANNOTATION)
            if text:
                return parse_duration(text)
        return None

    def _log_holds(self, now: int) -> None:
        for hold in self._driver.plan.holds:
            text = format_hold(hold)
            if self._last_hold_text.get(hold.workload) != text:
                self._last_hold_text[hold.workload] = text
                self._log(Event(now, "hold", hold.workload, text))

    def _check_capacity(self, now: int) -> None:
        """Logs a failed check for every resource of a node that its pods overcommit."""
        for node in self._cluster.list_kind("Node"):
            name = node["metadata"]["name"]
            _, allocatable = node_quantities(self._cluster.decoded("Node", name))
            used: Counter[str] = Counter()
            for key in self._cluster.pods_on(name):
                used.update(pod_requests(self._cluster.decoded("Pod", key)))
            for resource, amount in used.items():
                if amount > allocatable.get(resource, 0):
                    limit = format_amount(resource, allocatable.get(resource, 0))
                    actual = f"{format_amount(resource, amount)} {resource} of {limit} are in use"
                    self._log(Check(now, f"{name} is not overcommitted", False, actual))

    def _observed_state(self, now: int) -> ObservedState:
        return ObservedState(
            self._cluster,
            now,
            self._cluster.workloads(now),
            {hold.workload: hold for hold in self._driver.plan.holds},
            tuple(self._executor.evictions),
            frozenset(self._finished),
            self._cluster.notes,
            self._executor.asks,
        )

    def _check_moment(self, step: ResolvedMoment) -> None:
        assert step.expect is not None
        self._log(*check_expectations(step.expect, self._observed_state(step.at)))
        self._executor.evictions.clear()
        if step.expect.rest:
            self._log(self._check_stays_stable(step.at, step.expect.rest))

    def _check_stays_stable(self, now: int, rounds: int) -> Check:
        expectation = f"nothing changes in {rounds} further rounds"
        for later in range(now + 1, now + rounds + 1):
            plan = self._driver.decide(later)
            changes: list[object] = [evict for evict in plan.evicts if not evict.after]
            changes += [admit for admit in plan.admits if not admit.after]
            changes += [bind for bind in plan.binds if not bind.after]
            if changes:
                return Check(now, expectation, False, f"{later - now} s later: {changes[0]}")
        return Check(now, expectation, True)


@contextmanager
def _error_path(path: str) -> Iterator[None]:
    """Adds the path in the scenario file to an `InputError`."""
    try:
        yield
    except InputError as error:
        raise error.with_context(path=path) from None


def _parse_object_name(text: str) -> tuple[str, str]:
    """`Kind/name` or `Kind/namespace/name` as kind and key."""
    kind, _, key = text.partition("/")
    if not key:
        raise InputError(f"{text!r} names no object", remedy="use Kind/name")
    return kind, key if kind in CLUSTER_SCOPED_KINDS else namespaced_name(key)
