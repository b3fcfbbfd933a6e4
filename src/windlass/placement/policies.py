"""The placement policies by name, and their parameters for the kernels.

Read by `engine`, `planner` and the configuration. `windlass` is the default; the others are for comparison.
`docs/policies.md` describes every rule.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.node_state import DEV_END, DEV_FIRST, NodeState
from windlass.cluster.resource_columns import CPU
from windlass.model.errors import InputError
from windlass.placement.kernel_arrays import ScoringRule
from windlass.placement.kernels import scores

SCORERS = {
    "windlass": scores.WINDLASS,
    "fgd": scores.FGD,
    "best-fit": scores.BEST_FIT,
    "gpu-packing": scores.GPU_PACKING,
    "gpu-clustering": scores.GPU_CLUSTERING,
    "dot-product": scores.DOT_PRODUCT,
    "random": scores.RANDOM,
    "first-fit": scores.FIRST_FIT,
    "pack": scores.PACK,
    "spread": scores.SPREAD,
}

POLICIES = tuple(SCORERS)
DEFAULT_POLICY = "windlass"
USES_MIX = frozenset({"windlass", "fgd"})


class PlacementConfig(msgspec.Struct, frozen=True):
    policy: str = DEFAULT_POLICY
    seed: int = 0
    """For `random` only."""

    def __post_init__(self) -> None:
        if self.policy not in SCORERS:
            raise InputError(
                f"unknown placement policy {self.policy!r}",
                path="placement",
                remedy=f"one of {', '.join(POLICIES)}",
            )


def make_scoring_rule(config: PlacementConfig, state: NodeState) -> ScoringRule:
    """The policy's parameters for these nodes."""
    devices = state.node_info[:, DEV_END] - state.node_info[:, DEV_FIRST]
    return ScoringRule(
        scorer=SCORERS[config.policy],
        seed=config.seed & (1 << 63) - 1,  # the kernels take a non-negative 64-bit integer
        largest_cpu=max(1, int(state.allocatable[:, CPU].max(initial=0))),
        largest_gpu=max(1, 1000 * int(devices.max(initial=0))),
    )
