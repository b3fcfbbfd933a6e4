"""What a hold means to people: what binds it, what would free it, which smaller request would start now.

    plan.explained ─► advisor ─► limits · relief · changes (tried by `trials`) · offers of moves ─► the hold's verdict

`engine` hands over the decision as it was left: the overlay with everything placed, the walls of planned starts, quota
with everybody counted. Nothing here decides. It costs nothing until somebody reads `Plan.explained`, and then it is
bounded in steps, not in seconds: the first `advisor.MOST_EXPLAINED` holds of a plan, `trials.MOST_TRIALS` requests for
each, and so many pods placed for them at the most. The README beside this file says what is tried in which order.
"""

from windlass.placement.explain.advisor import Advisor
from windlass.placement.explain.aftermath import Aftermath, lone_room
from windlass.placement.explain.holds import ExplainedHolds

__all__ = ["Advisor", "Aftermath", "ExplainedHolds", "lone_room"]
