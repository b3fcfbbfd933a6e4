"""The cause of a hold: what would have to change, whichever reason most nodes have."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference.builders import taint
from reference.park import Desk, gpu_node, node, pod
from windlass.placement.explain.cause import CAUSE_ORDER, TOO_LARGE, NodeGroup, cause_of
from windlass.placement.explain.node_reasons import NODE_REFUSAL_CODES

TAINT, SELECTOR, CORDON = "TAINT_NOT_TOLERATED", "SELECTOR_MISMATCH", "NODE_UNSCHEDULABLE"
FULL, CPU = "GPU_FULL", "CPU_MEM_INSUFFICIENT"


def group(*permanent: str, lacks: tuple[str, ...] = (), capacity: int = 1) -> NodeGroup:
    return NodeGroup(permanent, lacks, capacity)


@pytest.mark.parametrize(
    ("wanted", "groups", "cause"),
    [
        # A node that it may use is full: it waits for room, though a tainted one is free.
        (1, [group(lacks=(FULL,)), group(TAINT)], FULL),
        # No node that it may use would ever do.
        (1, [group(TAINT)], TAINT),
        (1, [group(TAINT, lacks=(FULL,))], TAINT),
        (1, [group(TOO_LARGE), group(TAINT)], TAINT),
        # Of several rules that would each do, the one without which it would start now; a selector last.
        (1, [group(CORDON, lacks=(FULL,)), group(TAINT)], TAINT),
        (1, [group(SELECTOR), group(TAINT)], TAINT),
        (1, [group(CORDON, SELECTOR), group(SELECTOR)], SELECTOR),
        # Two rules together.
        (1, [group(TAINT, SELECTOR)], TAINT),
        # A gang: one node that it may use, and two that are tainted.
        (3, [group(lacks=(FULL,)), group(TAINT, capacity=2)], TAINT),
        (2, [group(capacity=2), group(TAINT, capacity=2)], "literal"),
        (3, [group(capacity=2)], TOO_LARGE),
        # GPUs are free where CPU lacks: that is nearer than a node without free GPUs.
        (1, [group(lacks=(FULL,)), group(lacks=(CPU,))], CPU),
        (1, [group(lacks=(CPU, FULL))], FULL),
        (1, [group(lacks=("DEVICE_UNHEALTHY",)), group(lacks=(FULL,))], "DEVICE_UNHEALTHY"),
        # A selector that means nodes which are too small.
        (1, [group(CPU), group(SELECTOR)], CPU),
        # Too small, all of them.
        (1, [group(TOO_LARGE), group(TAINT, TOO_LARGE)], TOO_LARGE),
        (1, [group(CPU)], CPU),
        # Nothing that could be the place.
        (1, [], "literal"),
    ],
)
def test_what_would_have_to_change(wanted: int, groups: list[NodeGroup], cause: str) -> None:
    assert cause_of("literal", wanted, groups) == cause


GROUPS = st.lists(
    st.builds(
        NodeGroup,
        permanent_codes=st.sets(st.sampled_from([TAINT, SELECTOR, CORDON]), max_size=2).map(tuple),
        capacity_codes=st.sets(st.sampled_from([FULL, CPU]), max_size=2).map(tuple),
        capacity=st.integers(1, 3),
    ),
    min_size=1,
    max_size=4,
)


@given(GROUPS, st.integers(1, 4), st.randoms())
def test_the_order_of_nodes_decides_nothing(groups: list[NodeGroup], wanted: int, random: object) -> None:
    mixed = list(groups)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert cause_of(FULL, wanted, groups) == cause_of(FULL, wanted, mixed)


@given(GROUPS, st.integers(1, 4))
def test_a_named_rule_keeps_it_off_some_node(groups: list[NodeGroup], wanted: int) -> None:
    cause = cause_of(FULL, wanted, groups)
    codes = {code for node_group in groups for code in (*node_group.permanent_codes, *node_group.capacity_codes)}
    assert cause in codes | {FULL, TOO_LARGE}


def test_every_cause_has_its_rank() -> None:
    assert set(CAUSE_ORDER) <= NODE_REFUSAL_CODES | {"GPU_FRAGMENTED"}


class TestInThePlan:
    def test_a_tainted_node_is_the_only_one_with_gpus(self) -> None:
        """The count says that one node lacks GPUs and one is tainted; the first has none and never will."""
        desk = Desk(gpu_node("g", 8, taints=[taint("gpu")]), node("c"), pod("p", 2))
        verdict = desk.verdict("p")
        assert verdict.code == TAINT
        assert {count.code for count in verdict.counts} == {TAINT, FULL}, "the literal answer stays"

    def test_a_node_that_is_not_well_is_no_matter_of_tolerations(self) -> None:
        ill = gpu_node("g", 8, taints=[taint("node.kubernetes.io/not-ready")])
        assert Desk(ill, pod("p", 2)).verdict("p").code == CORDON

    def test_a_resource_that_no_node_has(self) -> None:
        assert Desk(node("n"), pod("p", 1)).verdict("p").code == "RESOURCE_NAME_MISMATCH"

    def test_an_instance_of_a_gpu_that_no_node_has_or_makes(self) -> None:
        asks = pod("p", asks={"nvidia.com/mig-1g.10gb": 1})
        assert Desk(gpu_node("n", 4), asks).verdict("p").code == "RESOURCE_NAME_MISMATCH"

    def test_more_gpus_than_any_node_has(self) -> None:
        assert Desk(gpu_node("n", 4), pod("p", 8)).verdict("p").code == TOO_LARGE

    def test_a_selector_that_no_node_with_gpus_matches(self) -> None:
        desk = Desk(gpu_node("g", 8), node("c", labels={"a": "b"}), pod("p", 2, node_selector={"a": "b"}))
        assert desk.verdict("p").code == SELECTOR

    def test_plan_and_explanation_name_the_same(self) -> None:
        objects = (gpu_node("g", 8, taints=[taint("gpu")]), node("c"), pod("p", 2))
        for explain in (0, 32):
            (hold,) = Desk(*objects, explain=explain).plan().holds
            assert hold.verdict.code == TAINT
