"""The store, delta by delta: assumed binds, reported and guessed devices, and what is given back."""

from __future__ import annotations

import msgspec
import pytest

from reference.park import Desk, bound, gpu_node, in_bytes, mig_node, node, pod
from windlass.cluster.delta import Assume, Deleted, Forget
from windlass.cluster.node_state import FREE_MILLI, USED_SLICES
from windlass.cluster.node_state_builder import MAX_MODELS
from windlass.engine import decide
from windlass.model.codec import Unreadable
from windlass.model.decision import DeviceGrant
from windlass.model.errors import InputError

GPU0, GPU1 = (DeviceGrant(0),), (DeviceGrant(1),)


def test_an_assumed_bind_counts_until_it_is_confirmed_or_forgotten():
    desk = Desk(gpu_node("n", 2, cpu=4), pod("p", 1))
    desk.run()
    assert (desk.free("n"), desk.room("n")) == (3000, [0, 1000])
    desk.apply(Forget("default/p"))
    assert (desk.free("n"), desk.room("n")) == (4000, [1000, 1000])
    assert desk.run() == {"p": "n"}
    desk.put(bound(pod("p", 1), "n"))
    assert (desk.free("n"), desk.room("n")) == (3000, [0, 1000])
    desk.apply(Forget("default/p"))
    assert desk.free("n") == 3000, "what the API server shows as bound is bound"


def test_an_older_state_of_the_pod_does_not_undo_its_bind():
    desk = Desk(gpu_node("n", 2), pod("p", 1))
    desk.run()
    desk.put(pod("p", 1), pod("p", 1, labels={"app": "web"}))
    assert desk.plan().binds == ()
    assert desk.room("n") == [0, 1000]


def test_a_pod_of_the_same_name_made_anew_waits_anew():
    desk = Desk(gpu_node("n", 2), pod("p", 1))
    desk.run()
    again = pod("p", 1)
    desk.put(msgspec.structs.replace(again, metadata=msgspec.structs.replace(again.metadata, uid="second")))
    assert desk.room("n") == [1000, 1000]
    assert desk.run() == {"p": "n"}


def test_a_confirmed_bind_keeps_the_devices_that_were_given():
    desk = Desk(gpu_node("n", 2), pod("x", 1, on="n"), pod("p", 1))
    desk.apply(Assume("default/p", "n", GPU1), Deleted("Pod", "default/x"))
    desk.put(bound(pod("p", 1), "n"))
    assert desk.room("n") == [1000, 0]


def test_a_pod_that_another_scheduler_bound_elsewhere_takes_nothing_of_what_we_gave_it():
    desk = Desk(gpu_node("m", 2), gpu_node("n", 2), pod("p", 1))
    desk.apply(Assume("default/p", "n", GPU1))
    desk.put(bound(pod("x", 1), "m", allocated_devices="1"), bound(pod("p", 1), "m"))
    assert (desk.room("m"), desk.room("n")) == ([0, 0], [1000, 1000])


def test_what_the_node_agent_reports_is_believed_over_what_was_wished():
    """The kubelet swapped the two: each report is right, though the other's entry is still in its place."""
    desk = Desk(gpu_node("n", 2), pod("a", 1), pod("b", 1))
    desk.apply(Assume("default/a", "n", GPU0), Assume("default/b", "n", GPU1))
    desk.put(bound(pod("a", 1), "n", allocated_devices="1"), bound(pod("b", 1), "n", allocated_devices="0"))
    assert desk.room("n") == [0, 0]
    desk.apply(Deleted("Pod", "default/a"))
    assert desk.room("n") == [0, 1000]


@pytest.mark.parametrize("text", ["", "what", "²", "-1", "99", "9" * 5000, "1,0,1"])
def test_a_report_that_makes_no_sense_leaves_a_guess(text):
    desk = Desk(gpu_node("n", 2), bound(pod("p", 1), "n", allocated_devices=text))
    assert sorted(desk.room("n")) == [0, 1000]


def test_devices_nobody_reported_are_those_wished_for_else_the_first_with_room():
    desk = Desk(gpu_node("n", 4), bound(pod("a", 1), "n", devices="2"), pod("b", 2, on="n"))
    assert desk.room("n") == [0, 0, 0, 1000]


@pytest.mark.parametrize(("devices", "room"), [("1,1", [1000, 500]), ("1", [1000, 500]), ("0,1,1", [750, 500])])
def test_replicas_are_of_the_gpus_that_were_wished_for(devices, room):
    gpus = 3 if devices.count(",") == 2 else 2
    desk = Desk(gpu_node("n", 2, replicas=4), bound(pod("a", gpus), "n", devices=devices))
    assert desk.room("n") == room


@pytest.mark.parametrize("reported", ["0,1", "0,1,1"])
def test_replicas_that_were_given_stay_when_each_gpu_is_reported_once_or_each_replica(reported):
    given = (DeviceGrant(0, 250), DeviceGrant(1, 500, replicas=2))
    desk = Desk(gpu_node("n", 2, replicas=4), pod("a", 3))
    desk.apply(Assume("default/a", "n", given))
    desk.put(bound(pod("a", 3), "n", allocated_devices=reported))
    assert desk.room("n") == [750, 500]


def test_a_pod_may_come_before_its_node():
    desk = Desk(pod("b", 2, on="n"), pod("p", share="0.5"))
    assert desk.verdict("p").kube_message == "no nodes available to schedule pods"
    desk.put(gpu_node("n", 2))
    assert desk.room("n") == [0, 0]
    assert desk.verdict("p").code == "GPU_FULL"


def test_a_guess_at_a_returning_node_leaves_known_devices_alone():
    desk = Desk(pod("guessed", 1, on="n"), pod("p", 1), gpu_node("n", 2))
    desk.apply(Deleted("Node", "n"), Assume("default/p", "n", GPU0))
    desk.put(gpu_node("n", 2))
    assert desk.room("n") == [0, 0]


def test_mig_instances_of_pods_found_running_take_their_slices():
    """After a restart nothing says where they start; that they take room is certain."""
    desk = Desk(mig_node("n", 1), pod("a", mig=("3g.40gb", 1), on="n"), pod("b", mig=("1g.10gb", 2), on="n"))
    desk.put(pod("large", mig=("4g.40gb", 1)), pod("small", mig=("1g.10gb", 1)))
    assert desk.verdict("large").code == "GPU_FRAGMENTED"
    assert desk.devices("small") == [(0, "1g.10gb", 1)]


def test_a_node_that_goes_and_comes_back_still_has_its_pods():
    desk = Desk(gpu_node("n", 2), pod("assumed", 1), pod("sure", share="0.5", on="n"))
    desk.run()
    before = desk.room("n")
    desk.apply(Deleted("Node", "n"))
    assert desk.store.snapshot().nodes.size == 0
    desk.put(gpu_node("n", 2))
    assert desk.room("n") == before


def test_a_bind_to_a_node_that_is_gone_waits_for_the_answer():
    desk = Desk(gpu_node("n", 1), pod("p", 1))
    desk.apply(Deleted("Node", "n"), Assume("default/p", "n", GPU0))
    assert desk.put(gpu_node("m", 1)).plan().binds == ()
    desk.apply(Forget("default/p"))
    assert desk.run() == {"p": "m"}


def test_a_node_that_shrinks_keeps_the_pods_that_no_longer_fit():
    desk = Desk(gpu_node("n", 4, cpu=8), pod("p", 4, cpu="6"))
    desk.run()
    desk.put(gpu_node("n", 2, cpu=4))
    assert (desk.free("n"), desk.room("n")) == (-2000, [0, 0])
    desk.apply(Deleted("Pod", "default/p"))
    assert (desk.free("n"), desk.room("n")) == (4000, [1000, 1000])


def test_a_pod_that_asks_for_another_share_while_it_runs_is_counted_with_the_new_one():
    desk = Desk(gpu_node("n", 1), pod("p", share="0.5"))
    desk.run()
    desk.put(bound(pod("p", share="0.75"), "n"))
    assert desk.room("n") == [250]


def test_a_pod_that_ended_holds_nothing():
    desk = Desk(gpu_node("n", 1), pod("p", 1, on="n"))
    assert desk.room("n") == [0]
    desk.put(pod("p", 1, on="n", phase="Succeeded"))
    assert desk.room("n") == [1000]


def test_an_unreadable_bound_pod_shuts_its_node_until_it_is_understood():
    desk = Desk(node("n"), node("other"), pod("bad", cpu="lots", on="n"), pod("p"))
    assert desk.run() == {"p": "other"}
    verdict = desk.put(pod("q", node_selector={"kubernetes.io/hostname": "n"})).verdict("q")
    assert "1 node(s) could not be read or held a pod that could not be read" in verdict.kube_message
    desk.put(pod("bad", cpu="1", on="n"))
    assert desk.run() == {"q": "n"}


def test_that_a_node_is_shut_reaches_decisions_that_remember():
    """Nothing else of the node changes: the engine's cache has to notice this alone."""
    desk = Desk(node("n"), pod("p"))
    assert [bind.node for bind in desk.plan().binds] == ["n"]
    desk.put(pod("bad", cpu="lots", on="n"))
    assert desk.verdict("p").code == "NODE_NOT_UNDERSTOOD"
    desk.apply(Deleted("Pod", "default/bad"))
    assert [bind.node for bind in desk.plan().binds] == ["n"]


def test_a_new_resource_widens_the_arrays_of_later_snapshots_only():
    desk = Desk(node("n"), pod("p"))
    before = desk.store.snapshot()
    width = before.node_state.free.shape
    desk.put(pod("q", asks={"example.com/new": "1"}))
    assert desk.verdict("q").kube_message == "0/1 nodes are available: 1 Insufficient example.com/new."
    assert before.node_state.free.shape == width


def test_a_snapshot_is_not_touched_by_what_comes_after():
    desk = Desk(gpu_node("n", 2), pod("p", 1))
    snapshot = desk.store.snapshot()
    plan = in_bytes(desk.plan())
    grants = list(snapshot.pods.grants)
    desk.run()
    desk.apply(Deleted("Node", "n"))
    assert (snapshot.node_state.device_occupancy[:, 0].tolist(), list(snapshot.pods.grants)) == (
        [1000, 1000],
        grants,
    )
    assert snapshot.pods.pending().tolist() == [0]
    assert in_bytes(decide(snapshot, desk.config, 0)) == plan


def test_equal_generations_mean_equal_snapshots():
    desk = Desk(node("n"), pod("p"))
    first, second = desk.store.snapshot(), desk.store.snapshot()
    assert first.generation == second.generation
    desk.store.mark_decided(first.pods.pending())
    learned = desk.store.snapshot()
    assert learned.decided_pods != first.decided_pods
    assert learned.generation != first.generation


def test_thousands_of_pods_that_came_and_went_leave_no_trace():
    desk = Desk(node("n", cpu=2))
    for wave in range(4):
        keys = [f"p{wave}-{i}" for i in range(700)]
        desk.put(*[pod(key) for key in keys])
        desk.apply(*[Deleted("Pod", f"default/{key}") for key in keys[1:]])
    desk.put(pod("last", on="n"))
    snapshot = desk.store.snapshot()
    alive = [snapshot.pods.objects[row].metadata.name for row in snapshot.pods.pending().tolist()]
    assert alive == ["p0-0", "p1-0", "p2-0", "p3-0"]
    assert len(snapshot.pods.marks) < 2 * 1024
    assert desk.free("n") == 1000
    assert desk.run() == {"p0-0": "n"}


@pytest.mark.parametrize("known", [True, False])
def test_a_node_that_cant_be_understood_takes_no_new_work_and_is_said_once(known):
    """Its pods stay; once the node is readable again, it takes new pods."""
    before = [node("broken", cpu=4)] if known else []
    desk = Desk(node("n", cpu=1), *before, pod("runs", on="broken"), pod("waits", cpu="2"))
    desk.put(node("broken", cpu="many"))
    desk.put(node("broken", cpu="many"))
    snapshot = desk.store.snapshot()
    assert snapshot.unreadable["Node broken"].startswith("Node broken: status.")
    assert [note for note in snapshot.notes if "Node broken" in note] == [snapshot.unreadable["Node broken"]]
    assert snapshot.nodes.names == ("broken", "n")
    assert desk.run() == {}
    desk.put(node("broken", cpu=4))
    assert desk.store.snapshot().unreadable == {}
    assert desk.run() == {"waits": "broken"}


def test_a_node_that_is_no_node_at_all_keeps_what_was_known_of_it():
    desk = Desk(node("n", cpu=4), pod("runs", cpu="1", on="n"), pod("waits"))
    sick = Unreadable(InputError("is a list", path="status"), kind="Node", name="n")
    desk.put(sick, Unreadable(InputError("is a list", path="status"), kind="Node", name="unknown"))
    snapshot = desk.store.snapshot()
    assert set(snapshot.unreadable) == {"Node n", "Node unknown"}
    assert (desk.free("n"), desk.run()) == (3000, {})
    desk.put(node("n", cpu=4))
    desk.apply(Deleted("Node", "unknown"))
    assert desk.store.snapshot().unreadable == {}
    assert desk.run() == {"waits": "n"}


def test_one_model_too_many_makes_its_node_unreadable_and_nothing_else():
    desk = Desk(*(gpu_node(f"n{i:02}", 1, model=f"model-{i}") for i in range(MAX_MODELS + 1)))
    unreadable = desk.store.snapshot().unreadable
    assert list(unreadable) == [f"Node n{MAX_MODELS}"]
    assert f"limit of {MAX_MODELS} GPU models" in unreadable[f"Node n{MAX_MODELS}"]


@pytest.mark.parametrize("order", [1, -1])
def test_a_pod_stays_where_it_was_sent_though_the_gpu_is_ill_by_now(order):
    """Also where the store sees the pod and the illness for the first time, in whatever order."""
    sent = bound(pod("a", gpus=1), "n", devices="0")
    sick = gpu_node("n", 2, labels={}, annotations={"windlass.dev/unhealthy-devices": "0"}, ill=1)
    desk = Desk(*[sick, sent][::order])
    assert desk.store.snapshot().node_state.device_occupancy[:, FREE_MILLI].tolist() == [0, 1000]


def test_an_instance_stays_where_it_was_sent_though_the_gpu_is_ill_by_now():
    sick = mig_node("n", 2, annotations={"windlass.dev/unhealthy-devices": "0"})
    desk = Desk(sick, bound(pod("a", mig=("3g.40gb", 1)), "n", devices="0"))
    assert desk.store.snapshot().node_state.device_occupancy[:, USED_SLICES].tolist() == [0, 0]
    desk.put(mig_node("n", 2))
    assert desk.store.snapshot().node_state.device_occupancy[:, USED_SLICES].tolist() == [0b11110000, 0]


def test_a_gpu_that_falls_ill_under_its_pod_has_no_room_and_gets_none_back():
    desk = Desk(gpu_node("n", 2), pod("a", gpus=1, on="n"), pod("b", gpus=1, on="n"))
    desk.put(gpu_node("n", 2, ill=1))
    assert desk.store.snapshot().node_state.device_occupancy[:, FREE_MILLI].tolist() == [0, 0]
    for key in ("a", "b"):
        desk.apply(Deleted("Pod", f"default/{key}"))
    assert desk.store.snapshot().node_state.device_occupancy[:, FREE_MILLI].tolist() == [1000, 0]
    desk.put(gpu_node("n", 2))
    assert desk.store.snapshot().node_state.device_occupancy[:, FREE_MILLI].tolist() == [1000, 1000]


def test_heartbeats_of_a_node_cost_nothing():
    desk = Desk(node("n"), pod("p", on="n"))
    facts = desk.store.snapshot().nodes
    beat = node("n")
    desk.put(msgspec.structs.replace(beat, metadata=msgspec.structs.replace(beat.metadata, resource_version="2")))
    assert desk.store.snapshot().nodes is facts


def test_what_has_been_decided_on_is_told_at_growing_intervals():
    desk = Desk(node("n"))
    told = []
    for i in range(60):
        desk.put(pod(f"p{i}"))
        desk.store.mark_decided(desk.store.snapshot().pods.pending())
        told.append(int(desk.store.snapshot().decided_by_shape.sum()))
    assert sorted(set(told)) == [0, 32, 40, 50]
    assert told[31] == 32
