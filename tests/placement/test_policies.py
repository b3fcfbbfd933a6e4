"""Policies by name, their parameters for the kernels, and the scorer that a pod gets under each."""

from __future__ import annotations

import pytest

from reference.overlays import snapshot_of
from reference.park import gpu_node, node, pod
from windlass.cluster.shape import make_shape
from windlass.model.configuration import WorkloadClass
from windlass.model.meta import LabelSelector
from windlass.placement.kernels import scores
from windlass.placement.policies import POLICIES, SCORERS, PlacementConfig, make_scoring_rule
from windlass.placement.scorer_selector import ScorerSelector

STRATEGY = "windlass.dev/placement"


def test_every_policy_has_a_scorer_of_its_own() -> None:
    assert len(set(SCORERS.values())) == len(POLICIES) == 10
    assert scores.BALANCED not in SCORERS.values(), "a strategy of workloads, not a policy"


def test_a_rule_knows_the_largest_node() -> None:
    state = snapshot_of(gpu_node("a", 2, cpu=64), gpu_node("b", 8, cpu=16), node("c", cpu=32)).node_state
    rule = make_scoring_rule(PlacementConfig("best-fit", seed=5), state)
    assert rule == (scores.BEST_FIT, 5, 64_000, 8000)
    empty = make_scoring_rule(PlacementConfig(), snapshot_of().node_state)
    assert (empty.scorer, empty.largest_cpu, empty.largest_gpu) == (scores.WINDLASS, 1, 1)


@pytest.mark.parametrize(("seed", "kept"), [(0, 0), (2**63 - 1, 2**63 - 1), (2**63, 0), (-1, 2**63 - 1)])
def test_a_seed_is_a_number_that_kernels_take(seed: int, kept: int) -> None:
    state = snapshot_of(node("n")).node_state
    assert make_scoring_rule(PlacementConfig("random", seed), state).seed == kept


def scorer_of(policy: str, annotation: str = "", labels: dict[str, str] | None = None, *classes: WorkloadClass) -> int:
    notes = {STRATEGY: annotation} if annotation else {}
    asked = pod("p", 1, annotations=notes, labels=labels)
    return ScorerSelector(SCORERS[policy], classes).scorer(asked, make_shape(asked))


@pytest.mark.parametrize("policy", POLICIES)
def test_an_annotation_asks_for_a_strategy_under_any_policy(policy: str) -> None:
    assert scorer_of(policy) == SCORERS[policy]
    assert scorer_of(policy, "spread") == scores.SPREAD
    assert scorer_of(policy, "balanced") == scores.BALANCED
    packs = policy in ("windlass", "fgd", "best-fit", "gpu-packing", "gpu-clustering", "pack")
    assert scorer_of(policy, "pack") == (SCORERS[policy] if packs else scores.PACK)


def test_the_first_class_that_selects_the_pod_decides_and_an_annotation_before_it() -> None:
    servers = WorkloadClass("a", LabelSelector(match_labels={"kind": "server"}), "spread")
    everything = WorkloadClass("b", LabelSelector(), "balanced")
    assert scorer_of("windlass", "", {"kind": "server"}, servers, everything) == scores.SPREAD
    assert scorer_of("windlass", "", {"kind": "server"}, everything, servers) == scores.BALANCED
    assert scorer_of("windlass", "", {}, servers, everything) == scores.BALANCED
    assert scorer_of("windlass", "", {}, servers) == scores.WINDLASS
    assert scorer_of("windlass", "pack", {"kind": "server"}, servers) == scores.WINDLASS
    assert ScorerSelector(0).depends_on_shape_only
    assert not ScorerSelector(0, [servers]).depends_on_shape_only
