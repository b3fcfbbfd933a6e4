"""The store: deltas in, snapshots out.

Every source feeds it (informers, a dump, a trace, the simulator's own outcomes); `decide` sees only its snapshots.
A bind that was sent off is assumed, and counts, until the pod comes back bound or the bind is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from windlass.cluster.columns import ModelBook, build_state
from windlass.cluster.delta import Assume, ClusterObject, Delta, Forget, Gone, Put, Refused
from windlass.cluster.facts import NodeFacts
from windlass.cluster.history import History
from windlass.cluster.ledger import ALLOCATED_DEVICES as ALLOCATED_DEVICES
from windlass.cluster.ledger import WISHED_DEVICES as WISHED_DEVICES
from windlass.cluster.ledger import book, book_many, grants_of
from windlass.cluster.likeness import same_health, same_pod
from windlass.cluster.nodes import NodeBook
from windlass.cluster.others import OtherObjects
from windlass.cluster.pods import (
    ELSEWHERE,
    NOTHING_KEPT,
    PENDING,
    UNREADABLE,
    Kept,
    PodTable,
    PodTraits,
    on_node,
)
from windlass.cluster.refused import RefusalBook
from windlass.cluster.resources import ResourceBook
from windlass.cluster.shape import ShapeBook, bears_on_others
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.state import BLOCKED, Ints, NodeState
from windlass.cluster.traits import TraitsBook
from windlass.model.decision import DeviceGrant
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node
from windlass.model.objects import Unreadable
from windlass.model.pod import Pod, PodSpec
from windlass.model.run_times import Run

_FEW = 32
"""So many nodes that have changed, or one in so many, are written again row by row; where it is more, all are."""


class Store:
    def __init__(self, ranks: Mapping[str, int] | None = None) -> None:
        """`ranks` orders nodes of equal score (lowest first); by name where nothing is given."""
        self._pods = PodTable()
        self._shapes, self._resources, self._models = ShapeBook(), ResourceBook(), ModelBook()
        self._nodes = NodeBook(ranks or {}, self._resources, self._models)
        self._over: dict[str, Pod] = {}
        """Pods that have ended, or are being deleted before they began: they hold nothing and wait for nothing, but a
        gang's finished members count."""
        self._others = OtherObjects()
        self._refused = RefusalBook()
        self._facts = NodeFacts(())
        self._state: NodeState = build_state((), self._resources, self._models)
        self._state_shared = False
        self._history = History()
        self._tied = 0
        self._assumed: dict[str, str] = {}
        """Pod → node of binds that were sent off and are not confirmed yet."""
        self._guessed: dict[str, set[str]] = {}
        """Node → bound pods of which nobody has said which devices they have."""
        self._unreadable: dict[str, str] = {}
        self._traits = TraitsBook(self._shapes, self._resources, self._unreadable)
        self._generation = 0

    def apply(self, deltas: Iterable[Delta]) -> None:
        """Take the deltas in, in order. An object that can't be understood is kept as unreadable, by name."""
        binds: list[Assume] = []
        for delta in deltas:
            self._generation += 1
            if isinstance(delta, Assume):
                binds.append(delta)
                continue
            if binds:
                self._assume(binds)
                binds = []
            if isinstance(delta, Put):
                self._put(delta.object)
            elif isinstance(delta, Forget):
                self._forget(delta.pod)
            elif isinstance(delta, Refused):
                self._refused.put(delta.refusal)
            else:
                self._gone(delta)
        if binds:
            self._assume(binds)

    def snapshot(self, now: int = 0) -> Snapshot:
        """The cluster as it is. `now` dates what has been handed in and not submitted yet."""
        self._settle()
        if self._nodes.facts_are_old:
            self._facts = self._nodes.facts(self._facts)
        system, grouping = self._others.group(self, now)
        self._others.meet_templates(self._resources)
        self._widen()
        self._state_shared = True
        return Snapshot(
            generation=self._generation,
            facts=self._facts,
            state=self._state,
            pods=self._pods.share(),
            shapes=self._shapes,
            resources=self._resources,
            models=self._models,
            objects=self._others.looked_up,
            seen=self._history.told,
            decisions=self._history.total,
            tied=self._tied,
            system=system,
            workloads=grouping.workloads,
            notes=(*grouping.notes, *self._nodes.problems().values()),
            unreadable={**self._unreadable, **self._nodes.problems()},
            reservations=tuple(one for one in self._others.reservations() if one.until > now),
            budgets=self._others.budgets(),
            run_times=self._others.run_times,
            refusals=self._refused.at(now),
        )

    def learn(self, rows: Ints) -> None:
        """A decision has been made on these pod rows: from now on they count as seen."""
        self._generation += 1
        shapes = self._pods.rows.shape[self._pods.mark_decided(rows)]
        self._history.add(shapes[shapes != UNREADABLE], len(self._shapes))

    def take_runs(self) -> list[Run]:
        """Runs of queued work that have come to a good end, as snapshots saw them since the last time."""
        return self._others.take_runs()

    # As the grouping of workloads reads it

    def grouped_pod(self, key: str) -> Pod | None:
        """The pod as it will be once its bind is confirmed: what is assumed to run holds its quota."""
        row = self._pods.row_of.get(key)
        if row is None:
            return self._over.get(key)
        pod, node = self._pods.object(row), self._assumed.get(key)
        return pod if node is None or pod.is_bound else on_node(pod, node)

    def grouped_pods(self) -> Iterable[str]:
        return (*self._over, *self._pods.row_of)

    @property
    def grouped_nodes(self) -> Mapping[str, Node]:
        return self._nodes.objects

    @property
    def next_lesson(self) -> int:
        """How many pods have to be seen before snapshots tell of them."""
        return self._history.due

    def _put(self, obj: ClusterObject) -> None:
        if isinstance(obj, Pod):
            self._put_pod(obj)
        elif isinstance(obj, Node):
            if self._nodes.put(obj):
                self._others.node_changed(obj.name)
        elif isinstance(obj, Unreadable):
            self._put_unreadable(obj)
        else:
            if isinstance(obj, PodDisruptionBudget):
                self._refused.budget_changed(f"{obj.namespace}/{obj.metadata.name}")
            self._others.put(obj)

    def _put_unreadable(self, obj: Unreadable) -> None:
        """A pod that could not be decoded: if it is on a node, what is free there is not known."""
        if obj.kind == "Node":
            self._nodes.put_unreadable(obj)
        if obj.kind != "Pod":
            return
        meta = ObjectMeta(name=obj.name, namespace=obj.namespace)
        pod = Pod(metadata=meta, spec=PodSpec(node_name=obj.node_name))
        self._drop_pod(pod.key)
        self._others.pod_changed(pod.key)
        self._unreadable[pod.key] = str(obj.error)
        node = self._facts.index.get(obj.node_name, ELSEWHERE) if obj.node_name else PENDING
        traits = PodTraits(UNREADABLE, 0, 0)
        self._book(self._pods.append(pod.key, pod, traits, node, ()), 1)

    def _gone(self, delta: Gone) -> None:
        if delta.kind == "Pod":
            self._drop_pod(delta.key)
            if self._over.pop(delta.key, None) is not None:
                self._others.pod_changed(delta.key)
        elif delta.kind == "Node":
            self._nodes.drop(delta.key)
            self._others.node_changed(delta.key)
        else:
            self._others.drop(delta)

    def _settle(self) -> None:
        """After nodes came, changed or went: bring the arrays up to date, with the pods on them booked again."""
        many = len(self._nodes.revised) > max(_FEW, len(self._facts.names) // _FEW)
        if self._nodes.has_changed or many:
            self._facts, self._state = self._nodes.build()
            self._state_shared = False
            self._tied = 0
            self._book_again(self._pods.row_of.items(), [*self._guessed])
        elif self._nodes.revised:
            self._revise(sorted(self._nodes.revised))

    def _revise(self, names: Sequence[str]) -> None:
        """These nodes alone: what is on them is taken off, and booked again on what they are now."""
        index, rows = self._facts.index, self._pods.rows
        at = np.isin(rows.node, [index[name] for name in names]) & (rows.alive == 1)
        held = [(rows.objects[row].key, row) for row in np.flatnonzero(at).tolist()]
        self._tied -= sum(bears_on_others(rows.objects[row]) for _, row in held)
        state = self._own_state()
        self._state = state._replace(total=state.total.copy(), device=state.device.copy())
        for name in names:
            self._nodes.revise(self._state, index[name], name)
        self._nodes.revised.clear()
        self._book_again(held, [name for name in names if name in self._guessed])

    def _book_again(self, pods: Iterable[tuple[str, int]], guessed: Sequence[str]) -> None:
        """Those of the pods that are on nodes, and what is `guessed` of nodes; nothing of it is on the books."""
        # Pods whose devices are known go first, so that no guess takes them.
        guesses = set().union(*(self._guessed[name] for name in guessed))
        for key, row in sorted(pods, key=lambda item: not self._pods.grants(item[1])):
            name = self._node_name(key, row)
            if name and key not in guesses:
                node, grants = self._facts.index.get(name, ELSEWHERE), self._pods.grants(row)
                if node >= 0 and not grants:
                    grants = self._grants_of(self._pods.object(row), self._pods.shape(row), node)
                self._pods.bind(row, node, grants)
                self._book(row, 1)
        for name in guessed:
            self._guess(name)

    def _is_due(self, node: int) -> bool:
        """Whether the node's books are made anew before anybody reads them; until then nothing is booked there."""
        revised = self._nodes.revised
        return self._nodes.has_changed or bool(revised and self._facts.names[node] in revised)

    def _node_name(self, key: str, row: int) -> str:
        """Where the pod is, or is assumed to be; empty for one that waits."""
        return self._pods.object(row).spec.node_name or self._assumed.get(key, "")

    def _own_state(self) -> NodeState:
        """Before a write: leave the arrays that a snapshot shares to it."""
        self._widen()
        if self._state_shared:
            self._state = self._state.copy()
            self._state_shared = False
        return self._state

    def _widen(self) -> None:
        """Columns for resources that have been met since the arrays were made."""
        missing = len(self._resources) - self._state.free.shape[1]
        if missing:
            wider = ((0, 0), (0, missing))
            free, total = np.pad(self._state.free, wider), np.pad(self._state.total, wider)
            self._state = self._state._replace(free=free, total=total)

    # Pods

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key
        self._refused.pod_came(key, pod.metadata.uid)
        if self._over.pop(key, None) is not None:
            self._others.pod_changed(key)
        never_starts = bool(pod.metadata.deletion_timestamp) and not pod.is_bound and key not in self._assumed
        if pod.is_over or never_starts:
            self._others.pod_changed(key)
            self._drop_pod(key)
            self._over[key] = pod
            return
        kept = NOTHING_KEPT
        row = self._pods.row_of.get(key)
        if row is not None:
            old = self._pods.object(row)
            if same_pod(old, pod):
                if not same_health(old, pod):
                    self._pods.replace(row, pod)
                return
            if self._pods.node(row) != PENDING and not pod.is_bound and old.metadata.uid == pod.metadata.uid:
                return  # an older state of a pod whose bind is under way
            name = self._node_name(key, row)
            guessed = key in self._guessed.get(name, ())
            kept = Kept(name, self._pods.shape(row), self._pods.grants(row), guessed)
            self._drop_pod(key)
        self._add_pod(key, pod, kept)

    def _add_pod(self, key: str, pod: Pod, kept: Kept) -> None:
        self._others.pod_came(key, pod)
        traits = self._traits.of(key, pod)
        if not pod.is_bound:
            self._pods.append(key, pod, traits, PENDING, ())
            return
        node = self._facts.index.get(pod.spec.node_name, ELSEWHERE)
        if kept.node != pod.spec.node_name or not self._same_devices(kept.shape, traits.shape):
            kept = NOTHING_KEPT
        name = pod.spec.node_name
        if self._is_guess(pod, traits.shape, kept):
            known = node >= 0  # where the node itself is not there yet, nothing is on its books
            if known:
                self._lift_guesses(name)
            self._pods.append(key, pod, traits, node, ())
            self._guessed.setdefault(name, set()).add(key)
            if known:
                self._guess(name)
            return
        asks_gpus = traits.shape != UNREADABLE and self._shapes[traits.shape].gpu is not None
        if asks_gpus:
            self._lift_guesses(name)
        if node < 0:
            grants = kept.grants
        elif self._is_due(node):  # then it is asked again, on what the node has by then
            grants = () if ALLOCATED_DEVICES in pod.metadata.annotations else kept.grants
        else:
            grants = self._grants_of(pod, traits.shape, node, kept.grants)
        self._book(self._pods.append(key, pod, traits, node, grants), 1)
        if asks_gpus:
            self._guess(name)

    # Guesses: what is known of a node's devices comes first, whatever came first

    def _is_guess(self, pod: Pod, shape: int, kept: Kept) -> bool:
        if shape == UNREADABLE or self._shapes[shape].gpu is None or (kept.grants and not kept.guessed):
            return False
        annotations = pod.metadata.annotations
        return not (annotations.get(ALLOCATED_DEVICES) or annotations.get(WISHED_DEVICES))

    def _lift_guesses(self, name: str) -> None:
        """Take pods with guessed devices off the books of their node."""
        for key in self._guessed.get(name, ()):
            self._book(self._pods.row_of[key], -1)

    def _guess(self, name: str) -> None:
        """Give those pods devices again, the oldest first, of what is left."""
        node = self._facts.index.get(name, ELSEWHERE)
        if node >= 0 and self._is_due(node):
            return
        rows, created = self._pods.row_of, self._pods.rows.created
        for _, _, row in sorted((created[rows[key]], key, rows[key]) for key in self._guessed.get(name, ())):
            grants = self._grants_of(self._pods.object(row), self._pods.shape(row), node) if node >= 0 else ()
            self._pods.bind(row, node, grants)
            self._book(row, 1)

    def _same_devices(self, old: int, new: int) -> bool:
        """Whether two shapes ask for the same of GPUs."""
        return UNREADABLE not in (old, new) and self._shapes[old].gpu == self._shapes[new].gpu

    def _grants_of(
        self, pod: Pod, shape: int, node: int, kept: tuple[DeviceGrant, ...] = ()
    ) -> tuple[DeviceGrant, ...]:
        """The devices of a bound pod: as the node agent reports them, as we gave them, or as they likely are."""
        if shape == UNREADABLE:
            return ()
        return grants_of(self._state, node, self._shapes[shape], pod.metadata.annotations, kept)

    def _drop_pod(self, key: str) -> None:
        row = self._pods.row_of.get(key)
        if row is None:
            return
        self._others.pod_left(key)
        self._book(row, -1)
        self._guessed.get(self._node_name(key, row), set()).discard(key)
        self._pods.remove(key)
        self._unreadable.pop(key, None)
        self._assumed.pop(key, None)

    def _assume(self, deltas: Sequence[Assume]) -> None:
        self._settle()
        index, rows, nodes, grants = self._facts.index, [], [], []
        for delta in deltas:
            row = self._pods.row_of.get(delta.pod)
            if row is None or self._pods.node(row) != PENDING or delta.pod in self._assumed:
                continue
            self._others.pod_changed(delta.pod)
            self._assumed[delta.pod] = delta.node
            if self._pods.shape(row) == UNREADABLE:
                self._pods.bind(row, index.get(delta.node, ELSEWHERE), delta.devices)
                self._book(row, 1)
                continue
            rows.append(row)
            nodes.append(index.get(delta.node, ELSEWHERE))
            grants.append(delta.devices)
            self._tied += int(nodes[-1] >= 0 and bears_on_others(self._pods.object(row)))
        if not rows:
            return
        self._pods.bind_many(rows, nodes, grants)
        shapes = [self._shapes[number] for number in self._pods.shapes_of(rows)]
        book_many(self._own_state(), nodes, shapes, grants, self._resources)

    def _forget(self, key: str) -> None:
        row = self._pods.row_of.get(key)
        if row is None or self._pods.object(row).is_bound:
            return
        self._others.pod_changed(key)
        self._book(row, -1)
        self._pods.bind(row, PENDING, ())
        self._assumed.pop(key, None)

    def _book(self, row: int, sign: int) -> None:
        """Count a bound pod on its node, or take it off again."""
        node, shape = self._pods.node(row), self._pods.shape(row)
        if node < 0:
            return
        self._tied += sign * int(bears_on_others(self._pods.object(row)))
        if self._is_due(node):
            return
        state = self._own_state()
        if shape == UNREADABLE:
            state.node[node, BLOCKED] += sign
        else:
            book(state, node, self._shapes[shape], self._pods.grants(row), self._resources, sign)
