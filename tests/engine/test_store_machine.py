"""Whatever comes and goes, in whatever order: the books are what the objects say, nothing is given away twice, an older
snapshot stays as it was, and the memo changes no decision.
"""

from __future__ import annotations

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from reference.node_capacity import GpuDemand, NodeCapacity
from reference.park import bound, in_bytes, pod
from reference.parks import any_pods, machines
from windlass.cluster import store as store_module
from windlass.cluster.delta import Assume, Deleted, Forget, Put
from windlass.cluster.node_state import BLOCKED, FREE_MILLI, USED_SLICES
from windlass.cluster.pod_table import PENDING, UNKNOWN_NODE
from windlass.cluster.store import Store
from windlass.engine import EngineCache, EngineConfig, decide
from windlass.placement.policies import POLICIES, PlacementConfig

NODES = ("n0", "n1", "n2")
names = st.sampled_from((*NODES, "unknown"))
BROKEN = {"cpu": "a lot"}


class Known:
    """A pod as it was last put, where it is (or is thought to be), and whether that is only assumed."""

    def __init__(self, pod, at="", assumed=False):
        self.pod, self.at, self.assumed = pod, at, assumed

    @property
    def is_broken(self):
        return self.pod.spec.containers[0].resources.limits == BROKEN


class Books(RuleBasedStateMachine):
    @initialize(policy=st.sampled_from(POLICIES), first=machines("n0"), second=machines("n1"))
    def start(self, policy, first, second):
        self.store, self.memo = Store(), EngineCache()
        self.config = EngineConfig(PlacementConfig(policy))
        self.nodes, self.pods, self.snapshots = {}, {}, []
        self.count = self.unseen = 0
        for each in (first, second):
            self.put_node(each)

    # What happens to nodes

    @rule(made=st.sampled_from(NODES).flatmap(machines))
    def a_node_comes_or_changes(self, made):
        self.put_node(made)

    @rule(name=st.sampled_from(NODES))
    def a_node_goes(self, name):
        self.nodes.pop(name, None)
        self.tell([Deleted("Node", name)])

    def put_node(self, made):
        self.nodes[made.name] = made
        self.tell([Put(made)])

    # What happens to pods

    @rule(made=any_pods("new"))
    def a_pod_arrives(self, made):
        self.put_pod(self.named(made))

    @rule(made=any_pods("new"), name=names, devices=st.sampled_from(("", "0", "1,0", "7", "what")))
    def somebody_else_binds_a_pod(self, made, name, devices):
        notes = {"allocated_devices": devices} if devices else {}
        self.put_pod(bound(self.named(made), name, **notes))

    @rule(name=names | st.just(""))
    def an_unreadable_pod_comes(self, name):
        self.put_pod(pod(self.next_name(), cpu=BROKEN["cpu"], on=name))

    @rule(data=st.data(), devices=st.sampled_from(("0", "1", "1,0", "7")))
    @precondition(lambda self: any(pod.at and not pod.assumed for pod in self.pods.values()))
    def a_node_agent_reports_devices(self, data, devices):
        there = sorted(key for key, one in self.pods.items() if one.at and not one.assumed)
        known = self.pods[data.draw(st.sampled_from(there))]
        self.put_pod(bound(known.pod, known.at, allocated_devices=devices))

    @rule(data=st.data())
    @precondition(lambda self: self.pods)
    def a_pod_ends(self, data):
        known = self.pods.pop(data.draw(st.sampled_from(sorted(self.pods))))
        if data.draw(st.booleans()):
            self.tell([Deleted("Pod", known.pod.key)])
        else:
            status = msgspec.structs.replace(known.pod.status, phase="Succeeded")
            self.tell([Put(msgspec.structs.replace(known.pod, status=status))])

    @rule(data=st.data(), late=st.booleans())
    @precondition(lambda self: self.assumed())
    def a_bind_is_confirmed(self, data, late):
        known = self.pods[data.draw(st.sampled_from(self.assumed()))]
        if late:  # an older state arrives first, and changes nothing
            self.tell([Put(known.pod)])
        self.put_pod(bound(known.pod, known.at))

    @rule(data=st.data(), name=names)
    @precondition(lambda self: self.assumed())
    def another_scheduler_was_first(self, data, name):
        self.put_pod(bound(self.pods[data.draw(st.sampled_from(self.assumed()))].pod, name))

    @rule(data=st.data())
    @precondition(lambda self: self.assumed())
    def a_bind_fails(self, data):
        known = self.pods[data.draw(st.sampled_from(self.assumed()))]
        known.at, known.assumed = "", False
        self.tell([Forget(known.pod.key)])

    @rule(most=st.integers(0, 5))
    def the_engine_decides(self, most):
        snapshot = self.store.snapshot()
        plan = decide(snapshot, self.config, 0, self.memo)
        assert in_bytes(plan) == in_bytes(decide(snapshot, self.config, 0))
        self.store.mark_decided(snapshot.pods.pending())
        self.store.apply([Assume(b.pod, b.node, b.devices) for b in plan.binds[:most]])
        for bind in plan.binds[:most]:
            self.pods[bind.pod].at, self.pods[bind.pod].assumed = bind.node, True
        after = self.store.snapshot().node_state
        names = [snapshot.resources.name(column) for column in range(snapshot.node_state.free.shape[1])]
        # Instances that are made on demand are not advertised; what there is of them is in `room`.
        counted = [at for at, name in enumerate(names) if not name.startswith("nvidia.com/mig-")]
        before, now = snapshot.node_state.free[:, counted], after.free[:, counted]
        for old, new in ((before, now), (snapshot.node_state.device_occupancy, after.device_occupancy)):
            # What was overdrawn by others stays so; nothing of ours is.
            assert (new >= old.clip(max=0)).all()

    @rule()
    def somebody_keeps_a_snapshot(self):
        snapshot = self.store.snapshot()
        self.snapshots = [*self.snapshots[-2:], (snapshot, fingerprint(snapshot, self.config))]

    @rule(news=st.integers(2, 5))
    def nobody_looks_for_a_while(self, news):
        self.unseen = news

    def tell(self, deltas):
        self.store.apply(deltas)
        self.unseen = max(0, self.unseen - 1)

    def put_pod(self, made):
        self.pods[made.key] = Known(made, made.spec.node_name)
        self.tell([Put(made)])

    def assumed(self):
        return sorted(key for key, known in self.pods.items() if known.assumed)

    def named(self, made):
        name = self.next_name()
        return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, name=name, uid=name))

    def next_name(self):
        self.count += 1
        return f"p{self.count}"

    # What must hold

    @invariant()
    @precondition(lambda self: not self.unseen)
    def everybody_is_where_they_are(self):
        snapshot = self.store.snapshot()
        assert snapshot.nodes.names == tuple(sorted(self.nodes))
        index = {name: row for row, name in enumerate(snapshot.nodes.names)}
        expected = {key: index.get(known.at, UNKNOWN_NODE) if known.at else PENDING for key, known in self.pods.items()}
        assert {key: int(snapshot.pods.node[row]) for key, row in rows_of(snapshot).items()} == expected
        assert snapshot.unreadable.keys() == {key for key, known in self.pods.items() if known.is_broken}
        affine = [known for known in self.pods.values() if known.at in self.nodes and has_pod_affinity(known.pod)]
        assert snapshot.pods_with_affinity == len(affine)

    @invariant()
    @precondition(lambda self: not self.unseen)
    def the_books_are_what_the_objects_say(self):
        snapshot = self.store.snapshot()
        rows = rows_of(snapshot)
        for index, name in enumerate(snapshot.nodes.names):
            book = NodeCapacity(self.nodes[name])
            kinds, blocked = {}, 0
            for key, known in self.pods.items():
                if known.at != name:
                    continue
                if known.is_broken:
                    blocked += 1
                    continue
                book.charge(known.pod, snapshot.pods.grants[rows[key]])
                kinds[kind_of(known.pod)] = kinds.get(kind_of(known.pod), 0) + 1
            check_node(snapshot, index, book)
            assert snapshot.node_state.node_info[index, BLOCKED] == blocked
            kinds.pop(None, None)
            found = snapshot.node_state.gpu_pod_counts[index].tolist()
            assert {kind: many for kind, many in enumerate(found) if many} == kinds

    @invariant()
    def kept_snapshots_stay_as_they_were(self):
        for snapshot, then in self.snapshots:
            assert fingerprint(snapshot, self.config) == then


def rows_of(snapshot):
    alive = [row for row in range(len(snapshot.pods.marks)) if snapshot.pods.alive[row]]
    return {snapshot.pods.objects[row].key: row for row in alive}


def has_pod_affinity(pod):
    affinity = pod.spec.affinity
    return bool(affinity and (affinity.pod_affinity or affinity.pod_anti_affinity))


def kind_of(pod):
    """0 for a share, k for whole GPUs of which k, None without GPUs."""
    wish = GpuDemand(pod)
    if not wish.count:
        return None
    return min(16, wish.count) if wish.profile or wish.milli == 1000 else 0


def check_node(snapshot, index, book):
    state, expected = snapshot.node_state, [0] * snapshot.node_state.free.shape[1]
    for name, free in book.free.items():
        expected[snapshot.resources.column(name)] += free  # what no node has is one column
    assert state.free[index].tolist() == expected
    devices = state.devices(index)
    assert state.device_occupancy[devices.start : devices.stop, FREE_MILLI].tolist() == [d.free for d in book.devices]
    used = [sum(1 << each for each in device.used) for device in book.devices]
    assert state.device_occupancy[devices.start : devices.stop, USED_SLICES].tolist() == used


def fingerprint(snapshot, config):
    arrays = (*snapshot.node_state, snapshot.pods.marks, snapshot.pods.traits, snapshot.decided_by_shape)
    grants = tuple(snapshot.pods.grants[: len(snapshot.pods.marks)])
    plan = in_bytes(decide(snapshot, config, 0))
    return (
        [array.tobytes() for array in arrays],
        grants,
        snapshot.nodes.names,
        dict(snapshot.unreadable),
        plan,
    )


TestBooks = Books.TestCase
TestBooks.settings = settings(max_examples=settings.default.max_examples, stateful_step_count=40)


class BooksOfFewShapes(Books):
    """The same where shapes that no pod has are let go at once."""

    def __init__(self):
        self.kept = store_module.MIN_SHAPES
        store_module.MIN_SHAPES = 1
        super().__init__()

    def teardown(self):
        store_module.MIN_SHAPES = self.kept


TestBooksOfFewShapes = BooksOfFewShapes.TestCase
TestBooksOfFewShapes.settings = TestBooks.settings
