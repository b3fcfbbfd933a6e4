"""What a hold means to people: what binds it, what would free it, which smaller request would start now.

    plan ─► advisor ─► limits · relief · changes (tried by `trials`) · offers of moves ─► the hold's verdict

`engine` hands over the decision as it was left: the overlay with everything placed, the walls of planned starts, quota
with everybody counted. Nothing here decides. It is bounded in steps, not in seconds: so many of the first holds of a
plan as the engine's configuration says (`EngineConfig.explain`), `trials.MOST_TRIALS` requests for each, and so many
pods placed for them at the most. The README beside this file says what is tried in which order.
"""

from windlass.placement.explain.advisor import Advisor
from windlass.placement.explain.post_decision import PostDecisionState, single_pod_state
from windlass.placement.explain.single_pod_holds import make_single_pod_holds, with_api_refusals

__all__ = ["Advisor", "PostDecisionState", "make_single_pod_holds", "single_pod_state", "with_api_refusals"]
