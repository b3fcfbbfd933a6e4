"""The store: deltas in, snapshots out.

Every source feeds it (informers, a dump, a trace, the simulator's own outcomes); `decide` sees only its snapshots.
A bind that was sent off is assumed, and counts, until the pod comes back bound or the bind is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from windlass.cluster.auxiliary_objects import AuxiliaryObjects
from windlass.cluster.change_detection import is_pod_health_unchanged, is_pod_unchanged
from windlass.cluster.delta import Assume, ClusterObject, Deleted, Delta, Forget, Put, Refused
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import BLOCKED, Ints, NodeState
from windlass.cluster.node_state_builder import GpuModelCodes, build_state
from windlass.cluster.node_table import NodeTable
from windlass.cluster.pod_accounting import ALLOCATED_DEVICES as ALLOCATED_DEVICES
from windlass.cluster.pod_accounting import ASSIGNED_DEVICES as ASSIGNED_DEVICES
from windlass.cluster.pod_accounting import account_pod, account_pods, grants_of_bound_pod
from windlass.cluster.pod_mix_history import PodMixHistory
from windlass.cluster.pod_table import (
    NO_PREVIOUS_BINDING,
    PENDING,
    UNKNOWN_NODE,
    UNREADABLE,
    PodTable,
    PodTraits,
    PreviousBinding,
    with_node_name,
)
from windlass.cluster.refusal_cache import RefusalCache
from windlass.cluster.resource_columns import ResourceColumns
from windlass.cluster.shape import ShapeRegistry, has_pod_affinity
from windlass.cluster.snapshot import Snapshot
from windlass.cluster.traits import PodTraitsCache
from windlass.model.codec import Unreadable
from windlass.model.decision import DeviceGrant
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.meta import ObjectMeta
from windlass.model.node import Node
from windlass.model.pod import Pod, PodSpec
from windlass.model.run_time_history import FinishedRun

_FEW = 32
"""So many nodes that have changed, or one in so many, are written again row by row; where it is more, all are."""


class Store:
    def __init__(self, node_ranks: Mapping[str, int] | None = None) -> None:
        """`ranks` orders nodes of equal score (lowest first); by name where nothing is given."""
        self._pods = PodTable()
        self._shapes, self._resources, self._models = ShapeRegistry(), ResourceColumns(), GpuModelCodes()
        self._nodes = NodeTable(node_ranks or {}, self._resources, self._models)
        self._over: dict[str, Pod] = {}
        """Pods that have ended, or are being deleted before they began: they hold nothing and wait for nothing, but a
        gang's finished members count."""
        self._others = AuxiliaryObjects()
        self._refused = RefusalCache()
        self._facts = NodeColumns(())
        self._state: NodeState = build_state((), self._resources, self._models)
        self._state_shared = False
        self._history = PodMixHistory()
        self._tied = 0
        self._assumed: dict[str, str] = {}
        """Pod → node of binds that were sent off and are not confirmed yet."""
        self._guessed: dict[str, set[str]] = {}
        """Node → bound pods of which nobody has said which devices they have."""
        self._unreadable: dict[str, str] = {}
        self._traits = PodTraitsCache(self._shapes, self._resources, self._unreadable)
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
        if self._nodes.columns_are_stale:
            self._facts = self._nodes.columns(self._facts)
        system, grouping = self._others.group_workloads(self, now)
        self._others.register_template_resources(self._resources)
        self._widen()
        self._state_shared = True
        return Snapshot(
            generation=self._generation,
            nodes=self._facts,
            node_state=self._state,
            pods=self._pods.snapshot(),
            shapes=self._shapes,
            resources=self._resources,
            gpu_models=self._models,
            listers=self._others.listers,
            decided_by_shape=self._history.published,
            decided_pods=self._history.total,
            pods_with_affinity=self._tied,
            queue_system=system,
            workloads=grouping.workloads,
            notes=(*grouping.notes, *self._nodes.problems().values()),
            unreadable={**self._unreadable, **self._nodes.problems()},
            reservations=tuple(one for one in self._others.reservations() if one.until > now),
            budgets=self._others.budgets(),
            run_times=self._others.run_times,
            refusals=self._refused.active_at(now),
        )

    def mark_decided(self, rows: Ints) -> None:
        """A decision has been made on these pod rows: from now on they count as seen."""
        self._generation += 1
        shapes = self._pods.rows.shape[self._pods.mark_decided(rows)]
        self._history.record(shapes[shapes != UNREADABLE], len(self._shapes))

    def pop_finished_runs(self) -> list[FinishedRun]:
        """Runs of queued work that have come to a good end, as snapshots saw them since the last time."""
        return self._others.pop_finished_runs()

    # As the grouping of workloads reads it

    def pod_for_grouping(self, key: str) -> Pod | None:
        """The pod as it will be once its bind is confirmed: what is assumed to run holds its quota."""
        row = self._pods.row_of.get(key)
        if row is None:
            return self._over.get(key)
        pod, node = self._pods.object(row), self._assumed.get(key)
        return pod if node is None or pod.is_bound else with_node_name(pod, node)

    def pod_keys_for_grouping(self) -> Iterable[str]:
        return (*self._over, *self._pods.row_of)

    @property
    def nodes_for_grouping(self) -> Mapping[str, Node]:
        return self._nodes.objects

    @property
    def next_mix_update(self) -> int:
        """How many pods have to be seen before snapshots tell of them."""
        return self._history.next_publish_at

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
        node = self._facts.index.get(obj.node_name, UNKNOWN_NODE) if obj.node_name else PENDING
        traits = PodTraits(UNREADABLE, 0, 0)
        self._book(self._pods.append(pod.key, pod, traits, node, ()), 1)

    def _gone(self, delta: Deleted) -> None:
        if delta.kind == "Pod":
            self._drop_pod(delta.key)
            if self._over.pop(delta.key, None) is not None:
                self._others.pod_changed(delta.key)
        elif delta.kind == "Node":
            self._nodes.delete(delta.key)
            self._others.node_changed(delta.key)
        else:
            self._others.delete(delta)

    def _settle(self) -> None:
        """After nodes came, changed or went: bring the arrays up to date, with the pods on them booked again."""
        many = len(self._nodes.changed_nodes) > max(_FEW, len(self._facts.names) // _FEW)
        if self._nodes.needs_rebuild or many:
            self._facts, self._state = self._nodes.rebuild()
            self._state_shared = False
            self._tied = 0
            self._book_again(self._pods.row_of.items(), [*self._guessed])
        elif self._nodes.changed_nodes:
            self._revise(sorted(self._nodes.changed_nodes))

    def _revise(self, names: Sequence[str]) -> None:
        """These nodes alone: what is on them is taken off, and booked again on what they are now."""
        index, rows = self._facts.index, self._pods.rows
        at = np.isin(rows.node, [index[name] for name in names]) & (rows.alive == 1)
        held = [(rows.objects[row].key, row) for row in np.flatnonzero(at).tolist()]
        self._tied -= sum(has_pod_affinity(rows.objects[row]) for _, row in held)
        state = self._own_state()
        self._state = state._replace(
            allocatable=state.allocatable.copy(), device_info=state.device_info.copy()
        )
        for name in names:
            self._nodes.update_row(self._state, index[name], name)
        self._nodes.changed_nodes.clear()
        self._book_again(held, [name for name in names if name in self._guessed])

    def _book_again(self, pods: Iterable[tuple[str, int]], guessed: Sequence[str]) -> None:
        """Those of the pods that are on nodes, and what is `guessed` of nodes; nothing of it is on the books."""
        # Pods whose devices are known go first, so that no guess takes them.
        guesses = set().union(*(self._guessed[name] for name in guessed))
        for key, row in sorted(pods, key=lambda item: not self._pods.grants(item[1])):
            name = self._node_name(key, row)
            if name and key not in guesses:
                node, grants = self._facts.index.get(name, UNKNOWN_NODE), self._pods.grants(row)
                if node >= 0 and not grants:
                    grants = self._grants_of(self._pods.object(row), self._pods.shape(row), node)
                self._pods.bind(row, node, grants)
                self._book(row, 1)
        for name in guessed:
            self._guess(name)

    def _is_due(self, node: int) -> bool:
        """Whether the node's books are made anew before anybody reads them; until then nothing is booked there."""
        revised = self._nodes.changed_nodes
        return self._nodes.needs_rebuild or bool(revised and self._facts.names[node] in revised)

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
            free, total = np.pad(self._state.free, wider), np.pad(self._state.allocatable, wider)
            self._state = self._state._replace(free=free, allocatable=total)

    # Pods

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key
        self._refused.pod_added(key, pod.metadata.uid)
        if self._over.pop(key, None) is not None:
            self._others.pod_changed(key)
        never_starts = bool(pod.metadata.deletion_timestamp) and not pod.is_bound and key not in self._assumed
        if pod.is_terminal or never_starts:
            self._others.pod_changed(key)
            self._drop_pod(key)
            self._over[key] = pod
            return
        kept = NO_PREVIOUS_BINDING
        row = self._pods.row_of.get(key)
        if row is not None:
            old = self._pods.object(row)
            if is_pod_unchanged(old, pod):
                if not is_pod_health_unchanged(old, pod):
                    self._pods.replace(row, pod)
                return
            if self._pods.node(row) != PENDING and not pod.is_bound and old.metadata.uid == pod.metadata.uid:
                return  # an older state of a pod whose bind is under way
            name = self._node_name(key, row)
            guessed = key in self._guessed.get(name, ())
            kept = PreviousBinding(name, self._pods.shape(row), self._pods.grants(row), guessed)
            self._drop_pod(key)
        self._add_pod(key, pod, kept)

    def _add_pod(self, key: str, pod: Pod, kept: PreviousBinding) -> None:
        self._others.pod_added(key, pod)
        traits = self._traits.of(key, pod)
        if not pod.is_bound:
            self._pods.append(key, pod, traits, PENDING, ())
            return
        node = self._facts.index.get(pod.spec.node_name, UNKNOWN_NODE)
        if kept.node != pod.spec.node_name or not self._same_devices(kept.shape, traits.shape):
            kept = NO_PREVIOUS_BINDING
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

    def _is_guess(self, pod: Pod, shape: int, kept: PreviousBinding) -> bool:
        if shape == UNREADABLE or self._shapes[shape].gpu is None or (kept.grants and not kept.guessed):
            return False
        annotations = pod.metadata.annotations
        return not (annotations.get(ALLOCATED_DEVICES) or annotations.get(ASSIGNED_DEVICES))

    def _lift_guesses(self, name: str) -> None:
        """Take pods with guessed devices off the books of their node."""
        for key in self._guessed.get(name, ()):
            self._book(self._pods.row_of[key], -1)

    def _guess(self, name: str) -> None:
        """Give those pods devices again, the oldest first, of what is left."""
        node = self._facts.index.get(name, UNKNOWN_NODE)
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
        return grants_of_bound_pod(self._state, node, self._shapes[shape], pod.metadata.annotations, kept)

    def _drop_pod(self, key: str) -> None:
        row = self._pods.row_of.get(key)
        if row is None:
            return
        self._others.pod_removed(key)
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
                self._pods.bind(row, index.get(delta.node, UNKNOWN_NODE), delta.devices)
                self._book(row, 1)
                continue
            rows.append(row)
            nodes.append(index.get(delta.node, UNKNOWN_NODE))
            grants.append(delta.devices)
            self._tied += int(nodes[-1] >= 0 and has_pod_affinity(self._pods.object(row)))
        if not rows:
            return
        self._pods.bind_many(rows, nodes, grants)
        shapes = [self._shapes[number] for number in self._pods.shapes_of(rows)]
        account_pods(self._own_state(), nodes, shapes, grants, self._resources)

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
        self._tied += sign * int(has_pod_affinity(self._pods.object(row)))
        if self._is_due(node):
            return
        state = self._own_state()
        if shape == UNREADABLE:
            state.node_info[node, BLOCKED] += sign
        else:
            account_pod(state, node, self._shapes[shape], self._pods.grants(row), self._resources, sign)
