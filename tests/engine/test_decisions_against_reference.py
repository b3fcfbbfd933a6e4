"""On random clusters and queues, every decision is one that the slow reference agrees with, node by node."""

from __future__ import annotations

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reference.cluster import Cluster
from reference.inter_pod import inter_pod_reasons
from reference.node_capacity import GpuDemand, NodeCapacity
from reference.node_filters import node_filter_reasons
from reference.park import Desk
from reference.parks import any_pods, in_order, parks, queues, running
from windlass import jit
from windlass.cluster.delta import Assume
from windlass.model.decision import DeviceGrant
from windlass.model.reasons import FIRST_RESOURCE_BIT, NODE_REASONS, insufficient_reason, reason_of_bit
from windlass.placement.overlay import Overlay
from windlass.placement.policies import POLICIES, SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.score_table import ScoreTable
from windlass.placement.scorer_selector import ScorerSelector
from windlass.placement.workload_mix import WorkloadMix, mix_arrays


class Replay:
    """The cluster as the reference sees it, one placement after the other."""

    def __init__(self, nodes):
        nodes = sorted(nodes, key=lambda each: each.metadata.name)
        self.cluster = Cluster(nodes=nodes)
        self.rooms = [NodeCapacity(each) for each in nodes]

    def reasons(self, pod):
        """Per node, the reasons against the pod."""
        return [
            node_filter_reasons(pod, each, self.cluster)
            | inter_pod_reasons(pod, index, self.cluster)
            | self.rooms[index].reasons(pod)
            for index, each in enumerate(self.cluster.nodes)
        ]

    def place(self, pod, name, grants):
        (index,) = [i for i, each in enumerate(self.cluster.nodes) if each.metadata.name == name]
        assert not self.reasons(pod)[index]
        self.rooms[index].take(pod, grants)
        self.cluster.placed.append((pod, index))


def words(shape, mask):
    """One cell of the engine's mask as the names of its reasons."""
    found = set()
    for bit in range(64):
        if mask >> bit & 1:
            if bit >= FIRST_RESOURCE_BIT:
                found.add(insufficient_reason(shape.requests[bit - FIRST_RESOURCE_BIT][0]).name)
            else:
                found.add(reason_of_bit(bit).name)
    return found


def total_of(unit):
    return int(unit[0].metadata.annotations.get("kueue.x-k8s.io/pod-group-total-count", 1))


def check_plan(replay, pods, plan):
    """Every bind and every hold, in the engine's order, against the reference at that moment."""
    binds = {bind.pod: bind for bind in plan.binds}
    holds = {hold.workload: hold.verdict for hold in plan.holds}
    for unit in in_order(pods):
        group = unit[0].metadata.labels.get("kueue.x-k8s.io/pod-group-name")
        if len(unit) < total_of(unit):
            assert holds[f"{unit[0].metadata.namespace}/{group}"].code == "GANG_INCOMPLETE"
            assert not any(pod.key in binds for pod in unit)
            continue
        placed = [pod.key in binds for pod in unit]
        assert all(placed) or not any(placed), "a gang was torn apart"
        if all(placed):
            for pod in unit:
                replay.place(pod, binds[pod.key].node, binds[pod.key].devices)
        elif len(unit) == 1:
            check_verdict(replay.reasons(unit[0]), holds[unit[0].key])
        else:
            assert room_for(replay, unit[0]) < len(unit)
            assert f"{unit[0].metadata.namespace}/{group}" in holds, "it waits as one"


def check_verdict(expected, verdict):
    assert all(expected), "a pod that fits somewhere was held"
    counts = {}
    for words_ in expected:
        for word in words_:
            kube = kube_words(word)
            counts[kube] = counts.get(kube, 0) + 1
    assert {count.kube: count.nodes for count in verdict.counts} == counts
    assert verdict.nodes == len(expected)


def kube_words(word):
    if word == "INSUFFICIENT_PODS":
        return "Too many pods"
    if word.startswith("INSUFFICIENT_"):
        return f"Insufficient {word.removeprefix('INSUFFICIENT_')}"
    (found,) = [reason.kube_words for reason in NODE_REASONS if reason.name == word]
    return found


def room_for(replay, pod):
    """How many equal pods without inter-pod rules fit on the cluster."""
    copies = 0
    for index, each in enumerate(replay.cluster.nodes):
        room = NodeCapacity(each)
        room.free = dict(replay.rooms[index].free)
        for mine, theirs in zip(room.devices, replay.rooms[index].devices, strict=True):
            mine.free, mine.used = theirs.free, set(theirs.used)
        if node_filter_reasons(pod, each, replay.cluster) | inter_pod_reasons(pod, index, replay.cluster):
            continue
        while not room.reasons(pod):
            room.take(pod, lowest(room, pod))
            copies += 1
    return copies


def lowest(room, pod):
    """Grants on the lowest devices with room."""
    wish, grants = GpuDemand(pod), []
    left = wish.count
    for index, device in enumerate(room.devices):
        if left and device.healthy and wish.allows(device):
            copies = min(left, room.copies(wish, device, device.free))
            if copies:
                grants.append(DeviceGrant(index, copies * room.need(wish, device)))
                left -= copies
    return grants


@settings(max_examples=2 * settings.default.max_examples)
@given(nodes=parks(), pod=any_pods("new"), data=st.data())
def test_the_reasons_of_every_node_equal_the_reference(nodes, pod, data):
    """Whatever others have bound, more than there is included."""
    others = data.draw(running(nodes))
    snapshot = Desk(*nodes, *others, pod).store.snapshot()
    replay = Replay(nodes)
    for row, each in enumerate(others):
        index = snapshot.nodes.index[each.spec.node_name]
        replay.rooms[index].charge(each, snapshot.pods.grants[row])
        replay.cluster.placed.append((each, index))
    shape = snapshot.shapes[int(snapshot.pods.shape[len(others)])]
    table = ScoreTable(
        snapshot,
        mix_arrays(WorkloadMix(), snapshot.gpu_models, snapshot.node_state),
        ScorerSelector(SCORERS["windlass"]),
    )
    with np.errstate(over="ignore"):
        rule = make_scoring_rule(PlacementConfig("first-fit"), snapshot.node_state)
        overlay = Overlay(snapshot, table, rule, jit.kernels(small=True))
        mask = overlay.reasons(pod, table.row(shape, snapshot))
    assert [words(shape, int(cell)) for cell in mask] == replay.reasons(pod)


@settings(max_examples=2 * settings.default.max_examples)
@given(nodes=parks(), pods=queues(), policy=st.sampled_from(POLICIES))
def test_every_decision_is_one_that_the_reference_allows(nodes, pods, policy):
    desk = Desk(*nodes, *pods, policy=policy)
    check_plan(Replay(nodes), pods, desk.plan())


@settings(max_examples=settings.default.max_examples)
@given(nodes=parks(), first=queues(most=4), second=queues(most=4))
def test_so_it_is_on_a_park_that_is_in_use(nodes, first, second):
    desk = Desk(*nodes, *first)
    plan = desk.plan()
    replay = Replay(nodes)
    check_plan(replay, first, plan)
    desk.apply(*[Assume(bind.pod, bind.node, bind.devices) for bind in plan.binds])
    waiting = {hold.workload for hold in plan.holds}
    left = [pod for pod in first if pod.key not in {bind.pod for bind in plan.binds}]
    assert waiting or not left
    renamed = [renamed_pod(pod) for pod in second]
    desk.put(*renamed)
    check_plan(replay, [*left, *renamed], desk.plan())


def renamed_pod(pod):
    """The same under another name and group, so that it is a pod of its own."""
    labels = dict(pod.metadata.labels)
    if "kueue.x-k8s.io/pod-group-name" in labels:
        labels["kueue.x-k8s.io/pod-group-name"] += "-later"
    meta = msgspec.structs.replace(pod.metadata, name=f"later-{pod.metadata.name}", labels=labels)
    return msgspec.structs.replace(pod, metadata=meta)
