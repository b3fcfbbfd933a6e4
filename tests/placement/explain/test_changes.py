"""The smallest changes of a request: the largest amounts that start, in the order of what they give up."""

from __future__ import annotations

import pytest
from tests.engine.plain_objects import TWO_NODES, node, pod
from tests.placement.explain.held_objects import (
    GPU,
    PRODUCT,
    RACK,
    REQUIRED,
    ZONE,
    asking,
    change_of,
    changes,
    flavor,
    gang,
    having,
    in_queue,
    labelled,
    member,
    of_model,
    queue,
    racks,
    share,
    tainted,
    verdict,
)

from windlass.model.verdict import Change

# Amounts


@pytest.mark.parametrize(
    ("free", "requested", "text", "loss"),
    [
        (6, 8, "with 6 GPUs per pod instead of 8", 250),
        (7, 8, "with 7 GPUs per pod instead of 8", 125),
        (1, 8, "with 1 GPU per pod instead of 8", 875),
        (2, 3, "with 2 GPUs per pod instead of 3", 333),
    ],
)
def test_the_largest_number_of_gpus_that_is_free_on_a_node(free: int, requested: int, text: str, loss: int) -> None:
    found = verdict(*TWO_NODES, pod("a", 8 - free, on="n1"), pod("b", 8, on="n2"), pod("w", requested))
    assert changes(found) == [("gpus", text, loss)]
    assert found.changes[0] == Change("gpus", text, "main", str(requested), str(free), loss)


def test_no_smaller_number_where_nothing_is_free() -> None:
    assert changes(verdict(node("n1"), pod("a", 8, on="n1"), pod("w", 2))) == []
    assert changes(verdict(node("n1"), pod("a", 8, on="n1"), pod("w", 1))) == []


def test_fewer_pods_or_fewer_gpus_of_a_gang_by_what_they_give_up() -> None:
    found = verdict(node("n1"), node("n2"), pod("a", 3, on="n1"), pod("b", 2, on="n2"), *gang(3, 4))
    assert changes(found) == [
        ("gpus", "with 3 GPUs per pod instead of 4", 250),
        ("pods", "with 2 pods instead of 3", 333),
    ]
    one = verdict(node("n1"), pod("a", 4, on="n1"), *gang(2, 4))
    assert changes(one) == [
        ("gpus", "with 2 GPUs per pod instead of 4", 500),
        ("pods", "with 1 pod instead of 2", 500),
    ]


def test_a_pod_set_is_named_where_there_are_several() -> None:
    members = [member("w0", 3, 1), member("w1", 3, 4), member("w2", 3, 4)]
    found = verdict(*TWO_NODES, pod("a", 4, on="n1"), pod("b", 5, on="n2"), *members)
    assert changes(found) == [
        ("gpus", "with 3 GPUs per pod instead of 4 in pod set set-2", 250),
        ("pods", "with 1 pod instead of 2 in pod set set-2", 500),
    ]
    assert {change.pod_set for change in found.changes} == {"set-2"}


@pytest.mark.parametrize(
    ("used", "requested", "after", "loss"),
    [("50", "20", "14", 150), ("49500m", "20", "14500m", 137), ("49550m", "20", "14400m", 140)],
)
def test_cpu_is_rounded_down_to_tenths_and_counts_half(used: str, requested: str, after: str, loss: int) -> None:
    objects = [node("n1"), node("n2"), asking(pod("a", 1, on="n1"), cpu=60), asking(pod("b", 1, on="n2"), cpu=used)]
    found = verdict(*objects, asking(pod("w", 1), cpu=requested))
    text = f"with {after} cpu per pod instead of {requested}"
    assert found.changes == (Change("cpu", text, "main", requested, after, loss),)


def test_memory_is_rounded_down_to_64_mebibytes_and_counts_half() -> None:
    objects = [node("n1"), asking(pod("a", 1, on="n1"), memory="56Gi")]
    found = verdict(*objects, asking(pod("w", 1), memory="250Gi"))
    assert found.changes == (
        Change("memory", "with 200Gi memory per pod instead of 250Gi", "main", "250Gi", "200Gi", 100),
    )
    odd = verdict(node("n1"), asking(pod("a", 1, on="n1"), memory="56330Mi"), asking(pod("w", 1), memory="250Gi"))
    assert change_of(odd, "memory").after == "205760Mi", "262144 - 56330 = 205814 MiB, of which 3215 × 64 are offered"


def test_cpu_for_several_pods_is_what_a_node_has_divided_by_them() -> None:
    """64 cores for three pods: 21.3 each; the second node has four left."""
    members = [asking(one, cpu=40) for one in gang(3, 1)]
    found = verdict(node("n1"), node("n2"), asking(pod("r", 1, on="n2"), cpu=60), *members)
    assert changes(found) == [
        ("cpu", "with 21300m cpu per pod instead of 40", 233),
        ("pods", "with 1 pod instead of 3", 666),
    ]


def test_any_other_resource_counts_in_full() -> None:
    nodes = [having(node("n1"), **{"example.com/nic": 4}), having(node("n2"), **{"example.com/nic": 2})]
    running = asking(pod("r", 1, on="n1"), **{"example.com/nic": 3})
    found = verdict(*nodes, running, asking(pod("w", 1), **{"example.com/nic": 3}))
    text = "with 2 example.com/nic per pod instead of 3"
    assert found.changes == (Change("resource", text, "main", "3", "2", 333),)


def test_a_smaller_share_is_the_largest_that_some_gpu_has_left() -> None:
    running = [share("a", "0.7", on="n1"), share("b", "0.6", on="n1")]
    found = verdict(node("n1", 2), *running, share("w", "0.5"))
    text = "with 0.4 of a GPU instead of 0.5"
    assert found.changes == (Change("share", text, "main", "500", "400", 200),)
    assert changes(verdict(node("n1", 1), pod("a", 1, on="n1"), share("w", "0.5"))) == []


def test_a_share_over_quota_shrinks_by_tenths() -> None:
    queued = share("w", "0.55")
    queued["metadata"]["labels"] = in_queue()["labels"]
    running = share("r", "0.7", on="n1")
    running["metadata"]["labels"] = in_queue()["labels"]
    found = verdict(node("n1", 2), flavor(), *queue({"f": {GPU: 1}}), running, queued)
    assert found.code == "KUEUE_QUOTA_INSUFFICIENT"
    assert change_of(found, "share").after == "300"


# Quota


def test_gpus_cpu_and_pods_within_quota() -> None:
    objects = [*TWO_NODES, flavor(), *queue({"f": {GPU: 8, "cpu": 10}})]
    used = pod("r", 5, on="n1", metadata=in_queue())
    assert changes(verdict(*objects, used, pod("w", 6, metadata=in_queue()))) == [
        ("gpus", "with 3 GPUs per pod instead of 6", 500)
    ]
    assert changes(verdict(*objects, asking(pod("w", 1, metadata=in_queue()), cpu=15))) == [
        ("cpu", "with 9 cpu per pod instead of 15", 200)
    ]
    found = verdict(*objects, used, *gang(3, 2, queue="q"))
    assert changes(found) == [
        ("gpus", "with 1 GPU per pod instead of 2", 500),
        ("pods", "with 1 pod instead of 3", 666),
    ]


# Conditions


def test_a_toleration_for_the_taint_without_its_value_in_public() -> None:
    objects = [tainted("n1", ("team", "x", "NoSchedule")), node("n2"), pod("b", 8, on="n2")]
    found = verdict(*objects, pod("w", 4))
    assert found.changes == (
        Change(
            "toleration",
            "with a toleration for team=x:NoSchedule",
            "main",
            "",
            "team=x:NoSchedule",
            1,
            "with a toleration for the taint team",
        ),
    )


def test_all_hard_taints_of_a_node_count_and_none_that_kubernetes_sets() -> None:
    both = (("team", "x", "NoSchedule"), ("own", "", "NoExecute"))
    objects = [
        tainted("n1", *both, ("soft", "", "PreferNoSchedule")),
        tainted("n2", *both),
        tainted("n3", ("one", "", "NoSchedule")),
        tainted("n4", ("node.kubernetes.io/not-ready", "", "NoExecute")),
        pod("c", 8, on="n3"),
    ]
    change = change_of(verdict(*objects, pod("w", 4)), "toleration")
    assert (change.after, change.loss) == ("team=x:NoSchedule and own:NoExecute", 2)
    assert change.public_text == "with a toleration for the taint team and own"
    assert changes(verdict(objects[3], pod("w", 4))) == []


def test_taints_of_most_nodes_are_tried_first_and_four_kinds_at_most() -> None:
    """Nodes are full but for the last kind; the fifth kind of taint is not tried."""
    kinds = [tainted(f"n{at}", (f"k{at}", "", "NoSchedule")) for at in range(5)]
    full = [pod(f"r{at}", 8, on=f"n{at}") for at in range(5)]
    assert changes(verdict(*kinds, *full[:3], full[4], pod("w", 4)))[0][1] == "with a toleration for k3:NoSchedule"
    assert changes(verdict(*kinds, *full[:4], pod("w", 4))) == []
    more = tainted("n9", ("k4", "", "NoSchedule"))
    assert changes(verdict(*kinds, *full[:4], more, pod("w", 4)))[0][1] == "with a toleration for k4:NoSchedule"


def test_a_toleration_that_the_pod_has_is_not_proposed_again() -> None:
    objects = [tainted("n1", ("a", "", "NoSchedule"), ("b", "1", "NoSchedule"))]
    change = change_of(verdict(*objects, pod("w", 4, tolerations=[{"key": "a", "operator": "Exists"}])), "toleration")
    assert change.after == "b=1:NoSchedule"


def test_another_model_the_most_frequent_first_and_no_selector() -> None:
    objects = [
        of_model("n1", "H100"),
        of_model("n2", "A100"),
        of_model("n3", "B200"),
        of_model("n4", "B200"),
        pod("a", 8, on="n1"),
    ]
    found = verdict(*objects, pod("w", 4, nodeSelector={PRODUCT: "H100"}))
    assert found.changes[:2] == (
        Change("model", "with GPU model B200 instead of H100", "main", "H100", "B200", 20),
        Change("selector", f"without the node selector {PRODUCT}=H100", "main", f"{PRODUCT}=H100", "", 30),
    )


def test_another_model_by_annotation() -> None:
    notes = {"alibabacloud.com/gpu-card-model": "H100", "alibabacloud.com/gpu-count": "4"}
    waits = pod("w", 0, metadata={"annotations": {**notes, "alibabacloud.com/gpu-milli": "1000"}})
    objects = [of_model("n1", "H100"), of_model("n2", "A100"), of_model("n3", "B200", 3), pod("a", 8, on="n1")]
    found = verdict(*objects, pod("b", 3, on="n2"), waits)
    assert changes(found) == [("model", "with GPU model A100 instead of H100", 20)]


def test_one_selector_less_in_the_order_of_their_names() -> None:
    nodes = [labelled(node("n1"), a="1", c="3"), labelled(node("n2"), b="2")]
    found = verdict(*nodes, pod("w", 4, nodeSelector={"a": "1", "c": "3", "b": "2"}))
    assert changes(found) == [("selector", "without the node selector b=2", 30)]


def test_a_wider_level_then_a_preferred_one() -> None:
    nodes = racks(8, 8, 8, 8)
    running = [pod("a", 5, on="n0"), pod("b", 4, on="n2")]
    found = verdict(*nodes, *running, *gang(4, 4, annotations={REQUIRED: RACK}))
    text = "with the zone instead of the rack (25 GB/s) as the required topology level"
    assert found.changes[0] == Change("topology", text, "main", RACK, ZONE, 50)
    zones = [labelled(node(f"n{at}"), **{RACK: f"r{at}", ZONE: f"z{at}"}) for at in range(2)]
    apart = verdict(*zones, *gang(2, 8, annotations={REQUIRED: RACK}))
    text = "with the rack (25 GB/s) as a preferred instead of a required topology level"
    assert apart.changes[0] == Change("topology", text, "main", "required", "preferred", 100)


def test_no_more_than_three_changes() -> None:
    nodes = [*racks(8, 8, 8, 8), tainted("n9", ("team", "", "NoSchedule"))]
    nodes[-1]["metadata"]["labels"] |= {RACK: "r9", ZONE: "z"}
    running = [pod("a", 5, on="n0"), pod("b", 4, on="n2")]
    found = verdict(*nodes, *running, *gang(4, 4, annotations={REQUIRED: RACK}))
    assert [change.kind for change in found.changes] == ["topology", "pods", "gpus"]
    losses = [change.loss for change in found.changes]
    assert losses == sorted(losses)
