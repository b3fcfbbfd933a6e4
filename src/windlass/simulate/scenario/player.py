"""A scenario played on the virtual clock, through the production store and `decide`.

Called by the command line and the tests. Between two moments of the time line the clock goes from one end of work to
the next. At every moment rounds of decide and carry-out follow one another until nothing changes; that this takes few
rounds is itself an expectation of every scenario, and so is that no node is ever given more than it has.
"""

from __future__ import annotations

from collections import deque

import msgspec

from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.owners import OwnerObject, owner_from_object
from windlass.model.owners.normalise import QUEUE_NAME
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
from windlass.simulate.scenario.workload_shorthand import LAST_CHECKPOINT, SIMULATED_DURATION
from windlass.simulate.timeline import Timeline


def play(scenario: Scenario) -> Outcome:
    """The whole scenario, to its end, whether or not its expectations hold."""
    try:
        return _Play(scenario).run()
    except InputError as error:
        line, column = scenario.position_of(error.path)
        raise error.with_context(file=scenario.file, line=line, column=column) from None


class _End(msgspec.Struct, frozen=True):
    """On the timeline: a workload is done, unless this start of it was cut short."""

    workload: str
    start: int


class _Play:
    """A scenario as a script of the driver."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        document = scenario.document
        self.outcome = Outcome(scenario.name, scenario.file, document.title, document.story)
        self._world = SimulatedCluster()
        self._timeline: Timeline[TerminationEnd | _End | None] = Timeline()
        self._carrier = ScenarioExecutor(
            self._world, scenario.termination, self._timeline, self._finish_round
        )
        config = msgspec.structs.replace(
            engine_config(scenario.settings), max_explained_holds=MAX_EXPLAINED_HOLDS
        )
        self._driver = SimulationDriver(self._carrier, config)
        self._steps = deque(enumerate(scenario.steps))
        self._acted: ResolvedMoment | None = None
        """What has just happened, where it was written in the time line."""
        self._now = 0
        self._last: list[Event] = []
        """What the last plan changed."""
        self._said: dict[str, str] = {}
        """Workload → what was last said about its waiting."""
        self._starts: dict[str, int] = {}
        self._started: set[str] = set()
        self._finished: set[str] = set()

    def run(self) -> Outcome:
        with _blame("objects"):
            self._submit(self._scenario.objects, 0, "there is")
        if self._scenario.steps[0].at > 0:
            self._timeline.push(0, None, BEFORE_ENDS)  # what is there at the start is decided on, too
        for _ in self._driver.play(self):
            pass
        return self.outcome

    # The script

    def next_event_time(self) -> int | None:
        """Whatever ends or goes at the time of a step does so before it."""
        if not self._steps:
            return None
        due = self._timeline.next_at
        at = self._steps[0][1].at
        return at if due is None else min(at, due)

    def apply_events(self, now: int) -> bool:
        self._now, self._acted = now, None
        if self._timeline.next_at is not None and self._timeline.next_at <= now:
            for _, event in self._timeline.pop_due(now):
                if isinstance(event, TerminationEnd):
                    self._log(self._carrier.finish_termination(event, now))
                elif isinstance(event, _End):
                    self._end_of_run(event, now)
            return True
        index, self._acted = self._steps.popleft()
        with _blame(f"timeline[{index}]"):
            self._act(self._acted)
        return True

    def observe(self, now: int) -> None:
        if not self._last:
            self._note_holds(now)
        if self._acted is not None and self._acted.expect is not None:
            self._check(self._acted)

    def on_not_converged(self, now: int, plan: Plan) -> None:
        last = "; ".join(f"{one.kind} {one.subject} {one.text}" for one in self._last)
        self._log(
            Check(now, f"it comes to rest within {MAX_CYCLES} rounds", False, f"still going on: {last}")
        )

    def _finish_round(self, events: list[Event]) -> None:
        """A plan has been carried out."""
        self._last = events
        self._log(*events)
        self._note_starts(self._now)
        self._check_room(self._now)

    def _end_of_run(self, end: _End, now: int) -> None:
        workload = self._world.workloads(now).get(end.workload)
        is_current = self._starts.get(end.workload) == end.start and end.workload in self._started
        if is_current and workload is not None:
            self._end(workload, now)

    # What happens

    def _act(self, step: ResolvedMoment) -> None:
        moment, now = step.moment, step.at
        if moment.say:
            self._log(Event(now, "say", "", " ".join(moment.say.split())))
        for name in moment.finish:
            key = namespaced_name(name)
            workload = self._world.workloads(now).get(key)
            if workload is None:
                raise InputError(f"there is no workload {name}")
            self._end(workload, now)
        for name in moment.delete:
            self._delete(name, now)
        for name in moment.fail:
            self._fail(name, now)
        for name in moment.repair:
            self._world.update(with_node_ready(self._world.get("Node", name)))
            self._log(Event(now, "repair", name))
        for name, cordoned in [
            *((one, True) for one in moment.cordon),
            *((one, False) for one in moment.uncordon),
        ]:
            node = self._world.get("Node", name)
            self._world.update({**node, "spec": {**node.get("spec", {}), "unschedulable": cordoned}})
            self._log(Event(now, "cordon" if cordoned else "uncordon", name))
        for name in moment.checkpoint:
            self._checkpoint(namespaced_name(name), now)
        for queue, amounts in moment.quota.items():
            self._set_quota(queue, {resource_name(name): raw for name, raw in amounts.items()}, now)
        for change in moment.change:
            kind, key = _named(change.object)
            self._world.update(merge_patch(self._world.get(kind, key), change.merge))
            self._log(Event(now, "change", change.object, str(change.merge)))
        self._submit(step.submit, now, "submit")

    def _submit(self, trees: tuple[Unstructured, ...], now: int, verb: str) -> None:
        for tree in trees:
            key = self._world.create(tree, now)
            kind = tree["kind"]
            thing = self._world.decoded(kind, key)
            if isinstance(thing, OwnerObject):
                owner = owner_from_object(thing)
                waits = owner.suspended or QUEUE_NAME in thing.metadata.labels
                if not waits and not self._world.pods_owned_by(kind, key) and owner.gang_count == 1:
                    self._carrier.create_pods(self._world.get(kind, key), now)
            if verb == "submit" or kind == "Pod":
                self._log(Event(now, verb, f"{kind} {key}", tree.get("spec", {}).get("nodeName", "")))

    def _end(self, workload: Workload, now: int) -> None:
        self._carrier.finish_workload(workload, now)
        self._started.discard(workload.key)
        self._finished.add(workload.key)
        self._log(Event(now, "end", workload.key))

    def _delete(self, name: str, now: int) -> None:
        kind, key = _named(name)
        self._world.get(kind, key)
        if kind == "Node":
            self._fail(key, now)
        for pod in (
            self._world.pods_owned_by(kind, namespaced_name(key)) if kind not in CLUSTER_SCOPED_KINDS else ()
        ):
            self._world.delete("Pod", pod)
        self._world.delete(kind, key if kind in CLUSTER_SCOPED_KINDS else namespaced_name(key))
        self._log(Event(now, "delete", name))

    def _fail(self, name: str, now: int) -> None:
        """The node is lost, and the pods on it: those that something made are made again, and wait."""
        self._world.update(with_node_not_ready(self._world.get("Node", name)))
        self._log(Event(now, "fail", name))
        for pod in self._world.pods_on(name):
            self._carrier.remove_pod(pod, now)

    def _checkpoint(self, key: str, now: int) -> None:
        workload = self._world.workloads(now).get(key)
        if workload is None:
            raise InputError(f"there is no workload {key}")
        mark = {"metadata": {"annotations": {LAST_CHECKPOINT: virtual_timestamp(now)}}}
        names = [("Pod", pod) for one in workload.pod_sets for pod in one.pod_keys]
        if workload.kind not in POD_ONLY_KINDS:
            names = [(workload.kind, key)]
        for kind, name in names:
            self._world.update(merge_patch(self._world.get(kind, name), mark))
        self._log(Event(now, "checkpoint", key))

    def _set_quota(self, queue: str, amounts: dict[str, object], now: int) -> None:
        tree = merge_patch(self._world.get("ClusterQueue", queue), {})
        flavors = [one for group in tree["spec"]["resourceGroups"] for one in group["flavors"]]
        if len(flavors) != 1:
            raise InputError(f"ClusterQueue {queue} has {len(flavors)} flavors", remedy="use change")
        cells = [
            {**cell, "nominalQuota": amounts.get(cell["name"], cell["nominalQuota"])}
            for cell in flavors[0]["resources"]
        ]
        group = {**tree["spec"]["resourceGroups"][0], "flavors": [{**flavors[0], "resources": cells}]}
        self._world.update({**tree, "spec": {**tree["spec"], "resourceGroups": [group]}})
        self._log(Event(now, "quota", queue, ", ".join(f"{name} {raw}" for name, raw in amounts.items())))

    # What is noted

    def _log(self, *events: Event | Check) -> None:
        self.outcome.events.extend(events)

    def _note_starts(self, now: int) -> None:
        """Who runs now and didn't before gets an end, if it says how long it runs."""
        seen = self._seen(now)
        running = {key for key, workload in seen.workloads.items() if seen.is_running(workload)}
        for key in sorted(running - self._started):
            self._starts[key] = self._starts.get(key, 0) + 1
            self._said.pop(key, None)
            seconds = self._duration(seen.workloads[key])
            if seconds is not None:
                end = _End(key, self._starts[key])
                self._timeline.push(now + seconds, end, (ENDS, key, end.start))
        self._started = running

    def _duration(self, workload: Workload) -> int | None:
        trees = [self._world.find(workload.kind, workload.key)] if workload.kind not in POD_ONLY_KINDS else []
        trees += [self._world.find("Pod", pod) for one in workload.pod_sets for pod in one.pod_keys[:1]]
        for tree in trees:
            text = (tree or {}).get("metadata", {}).get("annotations", {}).get(SIMULATED_DURATION)
            if text:
                return parse_duration(text)
        return None

    def _note_holds(self, now: int) -> None:
        for hold in self._driver.plan.holds:
            text = format_hold(hold)
            if self._said.get(hold.workload) != text:
                self._said[hold.workload] = text
                self._log(Event(now, "hold", hold.workload, text))

    def _check_room(self, now: int) -> None:
        """No node is given more than it has."""
        for node in self._world.list_kind("Node"):
            name = node["metadata"]["name"]
            _, allocatable = node_quantities(self._world.decoded("Node", name))
            used: dict[str, int] = {}
            for key in self._world.pods_on(name):
                for what, amount in pod_requests(self._world.decoded("Pod", key)).items():
                    used[what] = used.get(what, 0) + amount
            for what, amount in used.items():
                if amount > allocatable.get(what, 0):
                    most = format_amount(what, allocatable.get(what, 0))
                    seen = f"{format_amount(what, amount)} {what} of {most} are given"
                    self._log(Check(now, f"{name} is not given more than it has", False, seen))

    def _seen(self, now: int) -> ObservedState:
        holds: dict[str, Hold] = {}
        for hold in self._driver.plan.holds:
            holds[hold.workload] = hold
        workloads = self._world.workloads(now)
        evictions = tuple(self._carrier.evictions)
        return ObservedState(
            self._world, now, workloads, holds, evictions, frozenset(self._finished), self._world.notes
        )

    def _check(self, step: ResolvedMoment) -> None:
        assert step.expect is not None
        seen = self._seen(step.at)
        holds = {hold.workload: hold for hold in self._driver.plan.holds}
        self._log(*check_expectations(step.expect, msgspec.structs.replace(seen, holds=holds)))
        self._carrier.evictions.clear()
        if step.expect.rest:
            self._log(self._rests(step.at, step.expect.rest))

    def _rests(self, now: int, rounds: int) -> Check:
        what = f"nothing changes in {rounds} further rounds"
        for later in range(now + 1, now + rounds + 1):
            plan = self._driver.decide(later)
            changes: list[object] = [*plan.evicts]
            changes += [one for one in plan.admits if not one.after]
            changes += [one for one in plan.binds if not one.after]
            if changes:
                return Check(now, what, False, f"{later - now} s later: {changes[0]}")
        return Check(now, what, True)


class _blame:
    """Says, in an error about something that isn't there, which part of the file asks for it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, InputError):
            raise error.with_context(path=self._path) from None


def _named(text: str) -> tuple[str, str]:
    """`Kind/name` or `Kind/namespace/name` as kind and key."""
    kind, _, key = text.partition("/")
    if not key:
        raise InputError(f"{text!r} names no object", remedy="write Kind/name")
    return kind, key if kind in CLUSTER_SCOPED_KINDS else namespaced_name(key)
