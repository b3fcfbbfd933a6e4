"""`Usage` from Kubernetes objects alone: since when the pods that exist hold their GPUs.

The last resort of `windlass usage`, for a dump or a cluster without history and Prometheus. What a GPU did is not
measured; pods that have been deleted or have ended are not in it, and neither are free GPUs of the past.
"""

from __future__ import annotations

from windlass.model.times import parse_timestamp
from windlass.telemetry.activity import UNMEASURED
from windlass.telemetry.ledger import ALLOCATED_STATES
from windlass.telemetry.observation import Observation
from windlass.telemetry.usage import Usage, UsageKey

NOTE = "from the pods that exist now: those that have ended are not in it, and what their GPUs did is not measured"


def usage_of_objects(observation: Observation, start: int, end: int) -> Usage:
    usage = Usage(start, end, notes=[NOTE])
    pods = {pod.key: pod for pod in observation.snapshot.pods.objects}
    for share in observation.ledger.shares:
        if share.holder is None or share.state not in ALLOCATED_STATES:
            continue
        pod = pods[share.pod]
        since = parse_timestamp(pod.status.start_time) or parse_timestamp(pod.metadata.creation_timestamp) or end
        seconds = end - max(start, since)
        if seconds > 0:
            usage.add(UsageKey.of(share.holder, share.model), UNMEASURED, share.milli * seconds)
    return usage
