"""A scenario played on the virtual clock, through the production store and `decide`.

Called by the command line and the tests. Between two moments of the time line the clock goes from one end of work to
the next. At every moment rounds of decide and carry-out follow one another until nothing changes; that this takes few
rounds is itself an expectation of every scenario, and so is that no node is ever given more than it has.
"""

from __future__ import annotations

import heapq

import msgspec

from windlass.engine import Memo, decide
from windlass.model.decision import Hold
from windlass.model.errors import InputError
from windlass.model.owners import OwnerObject, owner_of
from windlass.model.owners.normalise import QUEUE_NAME
from windlass.model.plan import Plan
from windlass.model.requests import format_amount, node_quantities, pod_requests
from windlass.model.times import duration_seconds
from windlass.model.workload import Workload
from windlass.placement.explain.advisor import MOST_EXPLAINED
from windlass.planner import engine_config
from windlass.simulate.scenario.carry import WITHOUT_OBJECT, Carrier
from windlass.simulate.scenario.clock import START, stamp
from windlass.simulate.scenario.expectations import Seen, check
from windlass.simulate.scenario.objects import lost, merged, repaired
from windlass.simulate.scenario.outcome import Check, Event, Outcome
from windlass.simulate.scenario.short_park import resource
from windlass.simulate.scenario.short_work import LAST_CHECKPOINT, SIMULATED_DURATION
from windlass.simulate.scenario.spec import Scenario, Step, Tree
from windlass.simulate.scenario.wording import hold_words
from windlass.simulate.scenario.world import CLUSTER_WIDE, World, full_name

MOST_ROUNDS = 40
"""Rounds at one moment after which a scenario is said not to come to rest."""


def play(scenario: Scenario) -> Outcome:
    """The whole scenario, to its end, whether or not its expectations hold."""
    try:
        return _Play(scenario).run()
    except InputError as error:
        line, column = scenario.place_of(error.path)
        raise error.with_context(file=scenario.file, line=line, column=column) from None


class _Play:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        document = scenario.document
        self.outcome = Outcome(scenario.name, scenario.file, document.title, document.story)
        self._world = World()
        self._carrier = Carrier(self._world, scenario.termination)
        self._config = msgspec.structs.replace(engine_config(scenario.settings), explain=MOST_EXPLAINED)
        self._memo = Memo()
        self._plan = Plan()
        self._notes: tuple[str, ...] = ()
        self._said: dict[str, str] = {}
        """Workload → what was last said about its waiting."""
        self._ends: list[tuple[int, str, int]] = []
        """(time, workload, which start of it): a start that was cut short has no end."""
        self._starts: dict[str, int] = {}
        self._started: set[str] = set()
        self._finished: set[str] = set()

    def run(self) -> Outcome:
        with _blame("objects"):
            self._submit(self._scenario.objects, 0, "there is")
        if self._scenario.steps[0].at > 0:
            self._settle(0)
        for index, step in enumerate(self._scenario.steps):
            self._advance(step.at)
            with _blame(f"timeline[{index}]"):
                self._act(step)
            self._settle(step.at)
            if step.expect is not None:
                self._check(step)
        return self.outcome

    # The clock

    def _advance(self, until: int) -> None:
        """Whatever ends or goes before or at that time."""
        while (moment := self._next_change()) is not None and moment <= until:
            self._log(*self._carrier.depart(moment))
            while self._ends and self._ends[0][0] <= moment:
                _, key, start = heapq.heappop(self._ends)
                workload = self._world.workloads(moment).get(key)
                if self._starts.get(key) == start and key in self._started and workload is not None:
                    self._end(workload, moment)
            self._settle(moment)

    def _next_change(self) -> int | None:
        ends = [self._ends[0][0]] if self._ends else []
        departure = self._carrier.next_departure()
        return min([*ends, *([departure] if departure is not None else [])], default=None)

    def _settle(self, now: int) -> None:
        """Decide and carry out until nothing changes."""
        events: list[Event] = []
        for _ in range(MOST_ROUNDS):
            self._plan = self._decide(now)
            events = self._carrier.carry(self._plan, now)
            self._log(*events)
            self._note_starts(now)
            self._check_room(now)
            if not events:
                self._note_holds(now)
                return
        last = "; ".join(f"{one.what} {one.subject} {one.text}" for one in events)
        self._log(
            Check(now, f"it comes to rest within {MOST_ROUNDS} rounds", False, f"still going on: {last}")
        )

    def _decide(self, now: int) -> Plan:
        snapshot = self._world.snapshot(now)
        plan = decide(snapshot, self._config, START + now, self._memo)
        self._world.learn(snapshot)
        self._notes = tuple(snapshot.notes)
        return plan

    # What happens

    def _act(self, step: Step) -> None:
        moment, now = step.moment, step.at
        if moment.say:
            self._log(Event(now, "say", "", " ".join(moment.say.split())))
        for name in moment.finish:
            key = full_name(name)
            workload = self._world.workloads(now).get(key)
            if workload is None:
                raise InputError(f"there is no workload {name}")
            self._end(workload, now)
        for name in moment.delete:
            self._delete(name, now)
        for name in moment.fail:
            self._fail(name, now)
        for name in moment.repair:
            self._world.put(repaired(self._world.get("Node", name)))
            self._log(Event(now, "repair", name))
        for name, cordoned in [
            *((one, True) for one in moment.cordon),
            *((one, False) for one in moment.uncordon),
        ]:
            node = self._world.get("Node", name)
            self._world.put({**node, "spec": {**node.get("spec", {}), "unschedulable": cordoned}})
            self._log(Event(now, "cordon" if cordoned else "uncordon", name))
        for name in moment.checkpoint:
            self._checkpoint(full_name(name), now)
        for queue, amounts in moment.quota.items():
            self._set_quota(queue, {resource(name): raw for name, raw in amounts.items()}, now)
        for change in moment.change:
            kind, key = _named(change.object)
            self._world.put(merged(self._world.get(kind, key), change.merge))
            self._log(Event(now, "change", change.object, str(change.merge)))
        self._submit(step.submit, now, "submit")

    def _submit(self, trees: tuple[Tree, ...], now: int, verb: str) -> None:
        for tree in trees:
            key = self._world.create(tree, now)
            kind = tree["kind"]
            thing = self._world.thing(kind, key)
            if isinstance(thing, OwnerObject):
                owner = owner_of(thing)
                waits = owner.suspended or QUEUE_NAME in thing.metadata.labels
                if not waits and not self._world.pods_owned_by(kind, key) and owner.groups == 1:
                    self._carrier.make_pods(self._world.get(kind, key), now)
            if verb == "submit" or kind == "Pod":
                self._log(Event(now, verb, f"{kind} {key}", tree.get("spec", {}).get("nodeName", "")))

    def _end(self, workload: Workload, now: int) -> None:
        self._carrier.end(workload, now)
        self._started.discard(workload.key)
        self._finished.add(workload.key)
        self._log(Event(now, "end", workload.key))

    def _delete(self, name: str, now: int) -> None:
        kind, key = _named(name)
        self._world.get(kind, key)
        if kind == "Node":
            self._fail(key, now)
        for pod in self._world.pods_owned_by(kind, full_name(key)) if kind not in CLUSTER_WIDE else ():
            self._world.remove("Pod", pod)
        self._world.remove(kind, key if kind in CLUSTER_WIDE else full_name(key))
        self._log(Event(now, "delete", name))

    def _fail(self, name: str, now: int) -> None:
        """The node is lost, and the pods on it: those that something made are made again, and wait."""
        self._world.put(lost(self._world.get("Node", name)))
        self._log(Event(now, "fail", name))
        for pod in self._world.pods_on(name):
            self._carrier.lose(pod, now)

    def _checkpoint(self, key: str, now: int) -> None:
        workload = self._world.workloads(now).get(key)
        if workload is None:
            raise InputError(f"there is no workload {key}")
        mark = {"metadata": {"annotations": {LAST_CHECKPOINT: stamp(now)}}}
        names = [("Pod", pod) for one in workload.pod_sets for pod in one.pods]
        if workload.kind not in WITHOUT_OBJECT:
            names = [(workload.kind, key)]
        for kind, name in names:
            self._world.put(merged(self._world.get(kind, name), mark))
        self._log(Event(now, "checkpoint", key))

    def _set_quota(self, queue: str, amounts: dict[str, object], now: int) -> None:
        tree = merged(self._world.get("ClusterQueue", queue), {})
        flavors = [one for group in tree["spec"]["resourceGroups"] for one in group["flavors"]]
        if len(flavors) != 1:
            raise InputError(f"ClusterQueue {queue} has {len(flavors)} flavors", remedy="use change")
        cells = [
            {**cell, "nominalQuota": amounts.get(cell["name"], cell["nominalQuota"])}
            for cell in flavors[0]["resources"]
        ]
        group = {**tree["spec"]["resourceGroups"][0], "flavors": [{**flavors[0], "resources": cells}]}
        self._world.put({**tree, "spec": {**tree["spec"], "resourceGroups": [group]}})
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
                heapq.heappush(self._ends, (now + seconds, key, self._starts[key]))
        self._started = running

    def _duration(self, workload: Workload) -> int | None:
        trees = [self._world.find(workload.kind, workload.key)] if workload.kind not in WITHOUT_OBJECT else []
        trees += [self._world.find("Pod", pod) for one in workload.pod_sets for pod in one.pods[:1]]
        for tree in trees:
            text = (tree or {}).get("metadata", {}).get("annotations", {}).get(SIMULATED_DURATION)
            if text:
                return duration_seconds(text)
        return None

    def _note_holds(self, now: int) -> None:
        for hold in self._plan.holds:
            text = hold_words(hold)
            if self._said.get(hold.workload) != text:
                self._said[hold.workload] = text
                self._log(Event(now, "hold", hold.workload, text))

    def _check_room(self, now: int) -> None:
        """No node is given more than it has."""
        for node in self._world.of_kind("Node"):
            name = node["metadata"]["name"]
            _, allocatable = node_quantities(self._world.thing("Node", name))
            used: dict[str, int] = {}
            for key in self._world.pods_on(name):
                for what, amount in pod_requests(self._world.thing("Pod", key)).items():
                    used[what] = used.get(what, 0) + amount
            for what, amount in used.items():
                if amount > allocatable.get(what, 0):
                    most = format_amount(what, allocatable.get(what, 0))
                    seen = f"{format_amount(what, amount)} {what} of {most} are given"
                    self._log(Check(now, f"{name} is not given more than it has", False, seen))

    def _seen(self, now: int) -> Seen:
        holds: dict[str, Hold] = {}
        for hold in self._plan.holds:
            holds[hold.workload] = hold
        workloads = self._world.workloads(now)
        evictions = tuple(self._carrier.evictions)
        return Seen(self._world, now, workloads, holds, evictions, frozenset(self._finished), self._notes)

    def _check(self, step: Step) -> None:
        assert step.expect is not None
        seen = self._seen(step.at)
        holds = {hold.workload: hold for hold in self._plan.holds}
        self._log(*check(step.expect, msgspec.structs.replace(seen, holds=holds)))
        self._carrier.evictions.clear()
        if step.expect.rest:
            self._log(self._rests(step.at, step.expect.rest))

    def _rests(self, now: int, rounds: int) -> Check:
        what = f"nothing changes in {rounds} further rounds"
        for later in range(now + 1, now + rounds + 1):
            plan = self._decide(later)
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
    return kind, key if kind in CLUSTER_WIDE else full_name(key)
