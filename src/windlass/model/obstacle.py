"""Why nothing makes room for a workload that waits: what keeps running work from being preempted for it, or GPUs that
are unhealthy.

`placement.explain` finds them; a verdict lists them after what holds the workload. Budgets and refusals of the API
server are `Refusal`s, which stand beside these.
"""

from __future__ import annotations

import msgspec

STUCK = "stuck"
"""A pod that is being deleted should have ended, and has not."""
UNHEALTHY = "unhealthy"
"""A node would take a pod if all its GPUs were healthy."""
POLICY = "policy"
"""Its own preemptionPolicy, or the preemption policies of its ClusterQueue, allow no preemption."""
PRIORITY = "priority"
"""What runs has the same priority or a higher one."""
MIN_RUN_TIME = "minRunTime"
"""What could be preempted has not run for long enough."""
PROTECTED = "protected"
"""What could be preempted is excluded from preemption by an annotation or a label."""
NO_GAIN = "noGain"
"""All that may be preempted would not make enough room."""


class Obstacle(msgspec.Struct, frozen=True, gc=False):
    kind: str
    text: str
    public_text: str
    """Without names of other tenants' objects."""
    workloads: tuple[str, ...] = ()
    """The workloads or pods concerned. Not public."""
    node: str = ""
    """Of a stuck pod, or the first with unhealthy GPUs. Not public."""
    at: int | None = None
    """When the protection ends, or when a stuck pod should have ended, in seconds."""
