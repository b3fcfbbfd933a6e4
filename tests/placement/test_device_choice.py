"""Which devices of a node a pod gets, and why they can't take it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.park import A100, H100, T4, UNHEALTHY, Desk, gpu_node, layout_node, mig_node, node, pod
from windlass.placement.policies import POLICIES

TWO_ISLANDS = (
    {"model": H100, "count": 4, "island": 0},
    {"model": H100, "count": 4, "island": 1},
)


def test_whole_gpus_come_from_the_nvlink_island_that_they_fill_best():
    desk = Desk(layout_node("n", *TWO_ISLANDS))
    desk.put(pod("x", 2, on="n", annotations={"windlass.dev/allocated-devices": "4,5"}))
    # Two are left in the second island: a pair fills it, and the first stays whole for a pod of four.
    desk.put(pod("pair", 2))
    assert desk.devices("pair") == [(6, 1000), (7, 1000)]
    desk.run()
    desk.put(pod("four", 4))
    assert desk.devices("four") == [(0, 1000), (1, 1000), (2, 1000), (3, 1000)]


def test_wherever_that_island_is():
    desk = Desk(layout_node("n", *TWO_ISLANDS), pod("pair", 2))
    desk.put(pod("x", 2, on="n", annotations={"windlass.dev/allocated-devices": "1,3"}))
    assert desk.devices("pair") == [(0, 1000), (2, 1000)]


def test_a_pod_larger_than_any_island_still_gets_its_gpus():
    desk = Desk(layout_node("n", *TWO_ISLANDS), pod("six", 6))
    assert [index for index, _ in desk.devices("six")] == [0, 1, 2, 3, 4, 5]


def test_published_policies_take_the_lowest_numbers():
    desk = Desk(layout_node("n", *TWO_ISLANDS), policy="fgd")
    desk.put(pod("x", 2, on="n", annotations={"windlass.dev/allocated-devices": "0,4"}), pod("p", 4))
    assert [index for index, _ in desk.devices("p")] == [1, 2, 3, 5]


def test_only_allowed_models_are_given():
    mixed = layout_node("n", {"model": T4, "count": 2}, {"model": H100, "count": 2}, {"model": A100, "count": 1})
    for policy in POLICIES:
        desk = Desk(mixed, pod("p", share="0.5", devices=2, models=[H100]), policy=policy)
        assert desk.devices("p") == [(2, 500), (3, 500)]
    refused = Desk(mixed, pod("p", share="0.5", models=["NVIDIA-B200"])).verdict("p")
    assert refused.counts[0].kube == "node(s) didn't have the requested GPU model"


def test_gpu_memory_becomes_a_share_of_the_device_that_has_it():
    """20,000 MiB are 246 thousandths of an H100, rounded up, and more than a T4 has at all."""
    mixed = layout_node("n", {"model": T4, "count": 1}, {"model": H100, "count": 1})
    desk = Desk(mixed, pod("p", memory_mib=20000))
    assert desk.devices("p") == [(1, 246)]
    desk.run()
    assert desk.room("n") == [1000, 754]


def test_devices_that_are_too_small_for_the_memory_are_said_to_be():
    desk = Desk(gpu_node("n", 4, model=T4), pod("p", memory_mib=20000))
    assert desk.verdict("p").counts[0].kube == "node(s) didn't have GPUs with the requested memory"


def test_a_selector_excludes_no_gpus_that_are_too_small_anyway():
    large, small = (gpu_node(name, 1, model=model, labels={"pool": name}) for name, model in (("a", H100), ("b", T4)))
    desk = Desk(large, small, pod("x", 1, on="a"), explain=1)
    desk.put(pod("p", memory_mib=20000, node_selector={"pool": "a"}))
    assert [limit.kind for limit in desk.verdict("p").limits if limit.kind == "model"] == []
    desk.put(pod("p", memory_mib=2000, node_selector={"pool": "a"}))
    assert [limit.kind for limit in desk.verdict("p").limits if limit.kind == "model"] == ["model"]


def test_a_pod_that_asks_for_gpu_memory_where_there_is_no_gpu_at_all_waits():
    assert Desk(node("n"), pod("p", memory_mib=1000)).verdict("p").code == "REQUEST_EXCEEDS_CLUSTER"


def test_unhealthy_devices_are_passed_over():
    ailing = gpu_node("n", 4, ill=1, annotations={UNHEALTHY: "0"})
    assert [index for index, _ in Desk(ailing, pod("p", 3)).devices("p")] == [1, 2, 3]
    verdict = Desk(ailing, pod("p", 4)).verdict("p")
    assert {count.kube for count in verdict.counts} == {
        "Insufficient nvidia.com/gpu",
        "node(s) had unhealthy GPUs",
    }
    assert verdict.nearest[0].lacks == {"nvidia.com/gpu": "1", "GPUs": "1"}
    assert verdict.code == "DEVICE_UNHEALTHY", "the cause, and not its consequence for the count"


def test_replicas_of_a_time_sliced_gpu_are_filled_device_by_device():
    desk = Desk(gpu_node("n", 2, replicas=4), pod("p", 1), pod("q", 3), pod("r", 4))
    desk.run()
    assert desk.room("n") == [0, 0]
    desk.put(pod("s", 1))
    assert desk.verdict("s").code == "GPU_FULL"


def test_more_replicas_than_a_packed_grant_can_count_of_one_device_are_taken_from_two():
    desk = Desk(gpu_node("n", 2, replicas=20, cpu=64), pod("p", 18))
    assert desk.devices("p") == [(0, 15 * 50), (1, 3 * 50)]
    desk.put(pod("q", 31))
    assert desk.verdict("q").code == "GPU_FULL"


def test_shares_of_several_devices_are_shares_of_different_ones_also_where_gpus_are_sliced():
    desk = Desk(gpu_node("n", 2, replicas=4), pod("p", share="0.25", devices=2))
    assert desk.devices("p") == [(0, 250), (1, 250)]
    desk.put(pod("q", share="0.25", devices=3))  # room enough, but on two devices
    assert desk.verdict("q").code == "GPU_FRAGMENTED"


def test_mig_instances_start_where_large_profiles_cant():
    """Starts 6 and 5 for the small ones; a half of the GPU stays in one piece at 0."""
    desk = Desk(mig_node("n", 1), pod("a", mig=("1g.10gb", 2)), pod("b", mig=("4g.40gb", 1)))
    assert desk.devices("a") == [(0, "1g.10gb", 6), (0, "1g.10gb", 5)]
    assert desk.devices("b") == [(0, "4g.40gb", 0)]
    desk.run()
    desk.put(pod("c", mig=("2g.20gb", 1)))
    assert desk.verdict("c").code == "GPU_FRAGMENTED"
    desk.put(pod("d", mig=("1g.10gb", 1)))
    assert desk.devices("d") == [(0, "1g.10gb", 4)]


def test_a_profile_goes_to_a_gpu_that_has_it():
    mixed = layout_node(
        "n",
        {"model": A100, "count": 1, "mig": "dynamic"},
        {"model": H100, "count": 1, "mig": "dynamic"},
    )
    desk = Desk(mixed, pod("p", mig=("7g.80gb", 1)))
    assert desk.devices("p") == [(1, "7g.80gb", 0)]
    desk.put(pod("q", mig=("3g.71gb", 1)))
    assert desk.verdict("q").code == "REQUEST_EXCEEDS_CLUSTER"


def test_instances_of_a_fixed_layout_are_counted_and_left_to_the_kubelet():
    desk = Desk(node("n", **{"nvidia.com/mig-1g.10gb": 2}), pod("p", mig=("1g.10gb", 2)))
    assert desk.devices("p") == []
    desk.run()
    desk.put(pod("q", mig=("1g.10gb", 1)))
    assert desk.verdict("q").kube_message == "0/1 nodes are available: 1 Insufficient nvidia.com/mig-1g.10gb."


def test_no_more_than_eight_instances_are_made_for_one_pod():
    desk = Desk(mig_node("n", 4, cpu=64), pod("p", mig=("1g.10gb", 9)), pod("q", mig=("1g.10gb", 8)))
    assert desk.verdict("p").code == "REQUEST_EXCEEDS_CLUSTER"
    assert len(desk.devices("q")) == 8


def test_whole_gpus_are_not_given_where_mig_instances_are_made():
    desk = Desk(mig_node("n", 2), pod("p", share="0.5"))
    assert desk.verdict("p").code == "GPU_FULL"


def test_a_share_waits_though_the_free_parts_would_add_up():
    desk = Desk(gpu_node("n", 2), pod("a", share="0.6", on="n"), pod("b", share="0.6", on="n"))
    desk.put(pod("p", share="0.7"))
    verdict = desk.verdict("p")
    assert verdict.counts[0].kube == "node(s) didn't have enough GPUs with room for the requested share"
    assert verdict.nearest[0].lacks == {"GPUs with 700 milli free": "1"}


@pytest.mark.parametrize("policy", POLICIES)
@given(st.lists(st.sampled_from(("0.1", "0.25", "0.4", "0.5", "0.81", "1")), max_size=12))
def test_shares_fill_devices_and_never_overfill_them(policy, shares):
    desk = Desk(
        gpu_node("n", 3, cpu=64),
        *[pod(f"p{i}", share=share) for i, share in enumerate(shares)],
        policy=policy,
    )
    placed = desk.run()
    room = desk.room("n")
    assert min(room) >= 0
    taken = sum(round(1000 * float(shares[int(name[1:])])) for name in placed)
    assert sum(room) == 3000 - taken
    for i, share in enumerate(shares):
        assert f"p{i}" in placed or max(room) < 1000 * float(share)
