"""The store: deltas in, snapshots out.

Every source feeds it (`scheduler.cache` with informers, `planner` with a dump, the simulator); `decide` reads only its
snapshots. A bind that was sent is assumed, and counts, until the pod comes back bound or the bind is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from windlass.cluster.auxiliary_objects import AuxiliaryObjects
from windlass.cluster.change_detection import is_pod_health_unchanged, is_pod_unchanged
from windlass.cluster.delta import Assume, ClusterObject, Deleted, Delta, Forget, Nominated, Put, Refused
from windlass.cluster.node_columns import NodeColumns
from windlass.cluster.node_state import BLOCKED, Ints, NodeState
from windlass.cluster.node_state_builder import GpuModelCodes, build_state
from windlass.cluster.node_table import NodeTable
from windlass.cluster.pod_accounting import (
    account_pod,
    account_pods,
    grants_of_bound_pod,
    is_contested,
    named_devices,
)
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
from windlass.cluster.shape import PodTraitsCache, ShapeRegistry, has_pod_affinity
from windlass.cluster.snapshot import Snapshot
from windlass.model.bug import bug_of
from windlass.model.codec import Unreadable, object_id
from windlass.model.decision import DeviceGrant
from windlass.model.disruption import PodDisruptionBudget
from windlass.model.errors import InputError
from windlass.model.meta import ObjectMeta
from windlass.model.names.windlass import ALLOCATED_DEVICES_ANNOTATION, DEVICES_ANNOTATION
from windlass.model.node import Node
from windlass.model.pod import Pod, PodSpec
from windlass.model.run_time_history import FinishedRun
from windlass.model.workload import Workload

_MAX_UPDATES = 32
"""Up to so many changed nodes, or one node in so many, are updated row by row; with more, all arrays are rebuilt."""


class Store:
    def __init__(self, node_ranks: Mapping[str, int] | None = None) -> None:
        """`node_ranks` orders nodes of equal score, lowest first; nodes without a rank have 0 and go by name."""
        self._pods = PodTable()
        self._shapes, self._resources, self._models = ShapeRegistry(), ResourceColumns(), GpuModelCodes()
        self._nodes = NodeTable(node_ranks or {}, self._resources, self._models)
        self._ended_pods: dict[str, Pod] = {}
        """Pods that have ended, or were deleted before they were bound. They use nothing, but finished members of a
        gang count."""
        self._auxiliary = AuxiliaryObjects()
        self._refusals = RefusalCache()
        self._nominated: frozenset[str] = frozenset()
        """Workloads that wait for their victims to terminate."""
        self._columns = NodeColumns(())
        self._state: NodeState = build_state((), self._resources, self._models)
        self._state_shared = False
        self._pod_mix = PodMixHistory()
        self._pods_with_affinity = 0
        self._assumed: dict[str, str] = {}
        """Pod → node of binds that were sent and are not confirmed yet."""
        self._guessed_pods: dict[str, set[str]] = {}
        """Node → bound pods whose devices neither the node agent nor a bind of ours names."""
        self._contested_nodes: set[str] = set()
        """Nodes with bound pods that name a device which another one has."""
        self._unreadable: dict[str, str] = {}
        self._broken: dict[tuple[str, str, str], str] = {}
        """Objects other than pods and nodes that a bug of ours keeps from being read → its message."""
        self._traits = PodTraitsCache(self._shapes, self._unreadable)
        self._generation = 0

    def apply(self, deltas: Iterable[Delta]) -> None:
        """Applies the deltas in order. An object that can't be read is kept as unreadable, by name."""
        binds: list[Assume] = []  # consecutive ones are applied together, in one array operation
        for delta in deltas:
            self._generation += 1
            if isinstance(delta, Assume):
                binds.append(delta)
                continue
            if binds:
                self._assume(binds)
                binds = []
            if isinstance(delta, Put):
                self._put_or_report(delta.object)
            elif isinstance(delta, Forget):
                self._forget(delta.pod)
            elif isinstance(delta, Refused):
                self._refusals.put(delta.refusal)
            elif isinstance(delta, Nominated):
                self._nominated = delta.workloads
            else:
                self._delete(delta)
        if binds:
            self._assume(binds)

    def snapshot(self, now: int = 0) -> Snapshot:
        """The cluster as it is. `now` is the creation time of objects that were not submitted yet."""
        self._flush_node_changes()
        if self._nodes.columns_are_stale:
            self._columns = self._nodes.columns(self._columns)
        system, grouping = self._auxiliary.group_workloads(self, now)
        self._state_shared = True
        node_problems = self._nodes.problems()
        return Snapshot(
            generation=self._generation,
            nodes=self._columns,
            node_state=self._state,
            pods=self._pods.snapshot(),
            shapes=self._shapes,
            resources=self._resources.copy(),
            gpu_models=self._models,
            listers=self._auxiliary.listers,
            decided_by_shape=self._pod_mix.published,
            decided_pods=self._pod_mix.total,
            pods_with_affinity=self._pods_with_affinity,
            queue_system=system,
            workloads=_with_nominations(grouping.workloads, self._nominated),
            notes=(*grouping.notes, *node_problems.values()),
            unreadable={**self._unreadable, **node_problems, **self._broken_objects()},
            reservations=tuple(item for item in self._auxiliary.reservations() if item.until > now),
            budgets=self._auxiliary.budgets(),
            run_times=self._auxiliary.run_times,
            refusals=self._refusals.active_at(now),
            any_asks=grouping.any_asks,
        )

    def _broken_objects(self) -> dict[str, str]:
        """`Kind.group namespace/name` → why it counts as absent."""
        mine = {f"{kind}.{group} {key}": text for (group, kind, key), text in self._broken.items()}
        return {**mine, **self._auxiliary.problems()}

    def mark_decided(self, rows: Ints) -> None:
        """Counts the pods of these rows, on which a decision was made, in the pod mix; each pod once."""
        self._generation += 1
        shapes = self._pods.rows.shape[self._pods.mark_decided(rows)]
        self._pod_mix.record(shapes[shapes != UNREADABLE], len(self._shapes))

    def pop_finished_runs(self) -> list[FinishedRun]:
        """Runs of queued workloads that have succeeded, found by snapshots since the last call."""
        return self._auxiliary.pop_finished_runs()

    # The methods of `workload_sync.GroupingSource`

    def pod_for_grouping(self, key: str) -> Pod | None:
        """The pod, bound if its bind is assumed: an assumed pod holds quota."""
        row = self._pods.row_of.get(key)
        if row is None:
            return self._ended_pods.get(key)
        pod, node = self._pods.object(row), self._assumed.get(key)
        return pod if node is None or pod.is_bound else with_node_name(pod, node)

    def pod_keys_for_grouping(self) -> Iterable[str]:
        return (*self._ended_pods, *self._pods.row_of)

    @property
    def nodes_for_grouping(self) -> Mapping[str, Node]:
        return self._nodes.objects

    @property
    def unreadable_pods(self) -> Mapping[str, str]:
        return self._unreadable

    @property
    def next_mix_update(self) -> int:
        """Number of decided pods at which snapshots get the next pod mix."""
        return self._pod_mix.next_publish_at

    def _put_or_report(self, obj: ClusterObject) -> None:
        if self._broken and not isinstance(obj, Unreadable):
            self._broken.pop(object_id(obj), None)
        try:
            self._put(obj)
        except Exception as error:  # whatever it is: it concerns this object, and must not concern the others
            self._put_broken(obj, error)

    def _put_broken(self, obj: ClusterObject, error: Exception) -> None:
        """An object that a bug of ours keeps from being read is one that can't be read. The arrays may be half
        written, so that they are built again."""
        group, kind, key = object_id(obj)
        problem = InputError(bug_of(error).message)
        if isinstance(obj, Pod):
            self._nodes.needs_rebuild = True
            if key in self._pods.row_of:
                self._pods.remove(key)
            for guessed in self._guessed_pods.values():
                guessed.discard(key)
            self._assumed.pop(key, None)
            meta = obj.metadata
            self._put_unreadable(Unreadable(problem, "Pod", meta.namespace, meta.name, obj.spec.node_name))
        elif isinstance(obj, Node):
            self._nodes.put_unreadable(Unreadable(problem, "Node", "", obj.name))
        else:
            self._auxiliary.delete(Deleted(kind, key, group))
            self._broken[group, kind, key] = str(problem)

    def _put(self, obj: ClusterObject) -> None:
        if isinstance(obj, Pod):
            self._put_pod(obj)
        elif isinstance(obj, Node):
            if self._nodes.put(obj):
                self._auxiliary.node_changed(obj.name)
        elif isinstance(obj, Unreadable):
            self._put_unreadable(obj)
        else:
            if isinstance(obj, PodDisruptionBudget):
                self._refusals.budget_changed(f"{obj.namespace}/{obj.metadata.name}")
            self._auxiliary.put(obj)

    def _put_unreadable(self, obj: Unreadable) -> None:
        """A pod that can't be decoded blocks its node: what is free there is not known."""
        if obj.kind == "Node":
            self._nodes.put_unreadable(obj)
        if obj.kind != "Pod":
            return
        meta = ObjectMeta(name=obj.name, namespace=obj.namespace)
        pod = Pod(metadata=meta, spec=PodSpec(node_name=obj.node_name))
        self._remove_pod(pod.key)
        self._auxiliary.pod_changed(pod.key)
        self._unreadable[pod.key] = str(obj.error)
        node = self._columns.index.get(obj.node_name, UNKNOWN_NODE) if obj.node_name else PENDING
        traits = PodTraits(UNREADABLE, 0, 0)
        self._account(self._pods.append(pod.key, pod, traits, node, ()), 1)

    def _delete(self, delta: Deleted) -> None:
        if delta.kind == "Pod":
            self._remove_pod(delta.key)
            if self._ended_pods.pop(delta.key, None) is not None:
                self._auxiliary.pod_changed(delta.key)
        elif delta.kind == "Node":
            self._nodes.delete(delta.key)
            self._auxiliary.node_changed(delta.key)
        else:
            self._broken.pop((delta.group, delta.kind, delta.key), None)
            self._auxiliary.delete(delta)

    def _flush_node_changes(self) -> None:
        """Brings the arrays up to date after node changes, and accounts the pods on these nodes again."""
        many = len(self._nodes.changed_nodes) > max(_MAX_UPDATES, len(self._columns.names) // _MAX_UPDATES)
        if self._nodes.needs_rebuild or many:
            self._columns, self._state = self._nodes.rebuild()
            self._state_shared = False
            self._pods_with_affinity = 0
            self._contested_nodes.clear()
            self._account_again(self._pods.row_of.items(), [*self._guessed_pods])
        elif self._nodes.changed_nodes:
            self._update_nodes(sorted(self._nodes.changed_nodes))

    def _update_nodes(self, names: Sequence[str]) -> None:
        """Rewrites the rows of these nodes, and accounts the pods on them again."""
        index, rows = self._columns.index, self._pods.rows
        at = np.isin(rows.node, [index[name] for name in names]) & (rows.alive == 1)
        bound = [(rows.objects[row].key, row) for row in np.flatnonzero(at).tolist()]
        self._pods_with_affinity -= sum(has_pod_affinity(rows.objects[row]) for _, row in bound)
        state = self._own_state()
        self._state = state._replace(allocatable=state.allocatable.copy(), device_info=state.device_info.copy())
        for name in names:
            self._nodes.update_row(self._state, index[name], name)
        self._nodes.changed_nodes.clear()
        self._contested_nodes.difference_update(names)
        self._account_again(bound, [name for name in names if name in self._guessed_pods])

    def _account_again(self, pods: Iterable[tuple[str, int]], guessed: Sequence[str]) -> None:
        """Accounts bound pods, and the pods with guessed devices on the nodes `guessed`; none is accounted yet."""
        # Pods whose devices are known go first, so that no guess takes these devices.
        guesses = set().union(*(self._guessed_pods[name] for name in guessed))
        for key, row in sorted(pods, key=lambda item: self._device_rank(*item)):
            name = self._node_name(key, row)
            if name and key not in guesses:
                self._account_on(row, self._columns.index.get(name, UNKNOWN_NODE))
        for name in guessed:
            self._assign_guessed_devices(name)

    def _account_on(self, row: int, node: int) -> None:
        grants, pod = self._pods.grants(row), self._pods.object(row)
        # The node may have had other devices when the grants were looked up. No annotation says where on its GPU a MIG
        # instance is: such grants are kept as long as they are on the named GPUs.
        if node >= 0 and (not grants or (pod.is_bound and named_devices(pod.metadata.annotations))):
            kept = grants if grants and grants[0].profile else ()
            grants = self._grants_of(pod, self._pods.shape(row), node, kept)
        self._pods.bind(row, node, grants)
        self._account(row, 1)
        if node >= 0 and is_contested(self._state, node, grants, pod.metadata.annotations):
            self._contested_nodes.add(self._columns.names[node])

    def _device_rank(self, key: str, row: int) -> tuple[int, int, str]:
        """Which pod gets its devices first: one whose devices are kept, one whose node agent reports them, then the
        oldest of those that only claim them, then one whose devices are looked for."""
        pod, grants = self._pods.object(row), self._pods.grants(row)
        annotations = pod.metadata.annotations
        is_named = pod.is_bound and named_devices(annotations)
        if grants and (grants[0].profile or not is_named):
            return 0, 0, ""
        if not is_named:
            return 3, 0, ""
        rank = 1 if annotations.get(ALLOCATED_DEVICES_ANNOTATION) else 2
        return rank, int(self._pods.rows.created[row]), key

    def _will_be_rebuilt(self, node: int) -> bool:
        """Whether the node's row will be written again before it is read; until then nothing is accounted on it."""
        changed = self._nodes.changed_nodes
        return self._nodes.needs_rebuild or bool(changed and self._columns.names[node] in changed)

    def _node_name(self, key: str, row: int) -> str:
        """The node that the pod is bound to, or assumed on; empty for a pending pod."""
        return self._pods.object(row).spec.node_name or self._assumed.get(key, "")

    def _own_state(self) -> NodeState:
        """The arrays, for writing: copied first if a snapshot shares them."""
        if self._state_shared:
            self._state = self._state.copy()
            self._state_shared = False
        return self._state

    # Pods

    def _put_pod(self, pod: Pod) -> None:
        key = pod.key
        self._refusals.pod_added(key, pod.metadata.uid)
        if self._ended_pods.pop(key, None) is not None:
            self._auxiliary.pod_changed(key)
        # A pending pod that is being deleted will never start.
        if pod.is_terminal or (pod.metadata.deletion_timestamp and not pod.is_bound and key not in self._assumed):
            self._auxiliary.pod_changed(key)
            self._remove_pod(key)
            self._ended_pods[key] = pod
            return
        previous = NO_PREVIOUS_BINDING
        row = self._pods.row_of.get(key)
        if row is not None:
            old = self._pods.object(row)
            if is_pod_unchanged(old, pod):
                if not is_pod_health_unchanged(old, pod):
                    self._traits.forget(old)
                    self._pods.replace(row, pod)
                return
            if self._pods.node(row) != PENDING and not pod.is_bound and old.metadata.uid == pod.metadata.uid:
                return  # a stale event: the bind of this pod was sent after it
            name = self._node_name(key, row)
            guessed = key in self._guessed_pods.get(name, ())
            previous = PreviousBinding(name, self._pods.shape(row), self._pods.grants(row), guessed)
            self._remove_pod(key)
        self._add_pod(key, pod, previous)

    def _add_pod(self, key: str, pod: Pod, previous: PreviousBinding) -> None:
        self._auxiliary.pod_added(key, pod)
        traits = self._traits.of(key, pod)
        if not pod.is_bound:
            self._pods.append(key, pod, traits, PENDING, ())
            return
        node = self._columns.index.get(pod.spec.node_name, UNKNOWN_NODE)
        if previous.node != pod.spec.node_name or not self._same_gpu_request(previous.shape, traits.shape):
            previous = NO_PREVIOUS_BINDING
        name = pod.spec.node_name
        if self._has_unknown_devices(pod, traits.shape, previous):
            if node >= 0:
                self._remove_guessed(name)
            self._pods.append(key, pod, traits, node, ())
            self._guessed_pods.setdefault(name, set()).add(key)
            if node >= 0:
                self._assign_guessed_devices(name)
            return
        asks_gpus = traits.shape != UNREADABLE and self._shapes[traits.shape].gpu is not None
        if asks_gpus:
            self._remove_guessed(name)
        if node < 0 or self._will_be_rebuilt(node):  # `_account_on` looks them up when the node's row is written
            grants = previous.grants
        else:
            grants = self._grants_of(pod, traits.shape, node, previous.grants)
        self._account(self._pods.append(key, pod, traits, node, grants), 1)
        if asks_gpus and node >= 0:
            if name in self._contested_nodes or is_contested(self._state, node, grants, pod.metadata.annotations):
                self._nodes.changed_nodes.add(name)  # so that all its pods get their devices again, in order
            self._assign_guessed_devices(name)

    # Pods with unknown devices get what pods with known devices leave, whichever came first.

    def _has_unknown_devices(self, pod: Pod, shape: int, previous: PreviousBinding) -> bool:
        if shape == UNREADABLE or self._shapes[shape].gpu is None:
            return False
        if previous.grants and not previous.guessed:
            return False
        annotations = pod.metadata.annotations
        return not (annotations.get(ALLOCATED_DEVICES_ANNOTATION) or annotations.get(DEVICES_ANNOTATION))

    def _remove_guessed(self, name: str) -> None:
        """Gives back what the node's pods with guessed devices use."""
        for key in self._guessed_pods.get(name, ()):
            self._account(self._pods.row_of[key], -1)

    def _assign_guessed_devices(self, name: str) -> None:
        """Gives these pods devices that are left, the oldest pod first, and accounts them."""
        node = self._columns.index.get(name, UNKNOWN_NODE)
        rows, created = self._pods.row_of, self._pods.rows.created
        keys = self._guessed_pods.get(name, ())
        if node >= 0 and self._will_be_rebuilt(node):
            for key in keys:
                self._account(rows[key], 1)  # nothing but whether it has affinity
            return
        for _, _, row in sorted((created[rows[key]], key, rows[key]) for key in keys):
            grants = self._grants_of(self._pods.object(row), self._pods.shape(row), node) if node >= 0 else ()
            self._pods.bind(row, node, grants)
            self._account(row, 1)

    def _same_gpu_request(self, old: int, new: int) -> bool:
        """Whether two shapes have the same GPU request."""
        return UNREADABLE not in (old, new) and self._shapes[old].gpu == self._shapes[new].gpu

    def _grants_of(
        self, pod: Pod, shape: int, node: int, previous: tuple[DeviceGrant, ...] = ()
    ) -> tuple[DeviceGrant, ...]:
        if shape == UNREADABLE:
            return ()
        return grants_of_bound_pod(self._state, node, self._shapes[shape], pod.metadata.annotations, previous)

    def _remove_pod(self, key: str) -> None:
        row = self._pods.row_of.get(key)
        if row is None:
            return
        self._auxiliary.pod_removed(key)
        self._account(row, -1)
        self._traits.forget(self._pods.object(row))
        name = self._node_name(key, row)
        self._guessed_pods.get(name, set()).discard(key)
        if name in self._contested_nodes and self._pods.grants(row):
            self._nodes.changed_nodes.add(name)
        self._pods.remove(key)
        self._unreadable.pop(key, None)
        self._assumed.pop(key, None)

    def _assume(self, deltas: Sequence[Assume]) -> None:
        self._flush_node_changes()
        index, rows, nodes, grants = self._columns.index, [], [], []
        for delta in deltas:
            row = self._pods.row_of.get(delta.pod)
            if row is None or self._pods.node(row) != PENDING or delta.pod in self._assumed:
                continue
            self._auxiliary.pod_changed(delta.pod)
            self._assumed[delta.pod] = delta.node
            if self._pods.shape(row) == UNREADABLE:
                self._pods.bind(row, index.get(delta.node, UNKNOWN_NODE), delta.devices)
                self._account(row, 1)
                continue
            rows.append(row)
            nodes.append(index.get(delta.node, UNKNOWN_NODE))
            grants.append(delta.devices)
            self._pods_with_affinity += int(nodes[-1] >= 0 and has_pod_affinity(self._pods.object(row)))
        if not rows:
            return
        self._pods.bind_many(rows, nodes, grants)
        shapes = [self._shapes[number] for number in self._pods.shapes_of(rows)]
        account_pods(self._own_state(), nodes, shapes, grants, self._resources)

    def _forget(self, key: str) -> None:
        row = self._pods.row_of.get(key)
        if row is None or self._pods.object(row).is_bound:
            return
        self._auxiliary.pod_changed(key)
        self._account(row, -1)
        self._pods.bind(row, PENDING, ())
        self._assumed.pop(key, None)

    def _account(self, row: int, sign: int) -> None:
        """Adds a bound pod to its node's row (`sign` 1), or takes it off again (-1)."""
        node, shape = self._pods.node(row), self._pods.shape(row)
        if node < 0:
            return
        self._pods_with_affinity += sign * int(has_pod_affinity(self._pods.object(row)))
        if self._will_be_rebuilt(node):
            return
        state = self._own_state()
        if shape == UNREADABLE:
            state.node_info[node, BLOCKED] += sign
        else:
            account_pod(state, node, self._shapes[shape], self._pods.grants(row), self._resources, sign)


def _with_nominations(workloads: tuple[Workload, ...], nominated: frozenset[str]) -> tuple[Workload, ...]:
    if not nominated:
        return workloads
    return tuple(
        msgspec.structs.replace(workload, nominated=True)
        if workload.key in nominated and workload.admission is None
        else workload
        for workload in workloads
    )
