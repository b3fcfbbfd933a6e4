"""Explains holds: what keeps a workload from starting, whose end would free it, which smaller request would start now.

    plan ─► advisor ─► limits · relief · changes (checked by `dry_runs`) · move offers ─► the hold's verdict

`engine` passes the state after the decision: the overlay with everything placed, planned starts, and quota in use.
Nothing here decides. The work is bounded in steps, not in seconds: `EngineConfig.explain` holds of a plan,
`dry_runs.MAX_DRY_RUNS` dry runs for each. The README says what is tried in which order.
"""

from windlass.placement.explain.advisor import Advisor
from windlass.placement.explain.post_decision import PostDecisionState, single_pod_state
from windlass.placement.explain.single_pod_holds import make_single_pod_holds, with_api_refusals

__all__ = ["Advisor", "PostDecisionState", "make_single_pod_holds", "single_pod_state", "with_api_refusals"]
