"""Jobs that have begun to hold GPUs since the ledger before, and for how long they had waited.

`scheduler.ledger_recorder` shows it every ledger and keeps what it finds in the history, out of which the waiting
times of the page come. It goes by what pods hold, not by what was decided: a binding that failed is no start. A job
counts once, when its first pod has GPUs; one that begins and ends between two ledgers is not seen.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.snapshot import Snapshot
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import Ledger


class Start(msgspec.Struct, frozen=True):
    holder: Holder
    milli: int
    """Milli-GPU that it holds."""
    waited_seconds: int


class StartFinder:
    def __init__(self) -> None:
        self._running: frozenset[str] | None = None

    def find(self, snapshot: Snapshot, ledger: Ledger) -> list[Start]:
        """Nothing for the first ledger: what it shows may have begun at any time."""
        held: dict[Holder, dict[str, int]] = {}
        for share in ledger.shares:
            if share.holder is not None:
                pods = held.setdefault(share.holder, {})
                pods[share.pod] = pods.get(share.pod, 0) + share.milli
        before, self._running = self._running, frozenset(holder.job for holder in held)
        new = {holder: pods for holder, pods in held.items() if before is not None and holder.job not in before}
        return _starts(new, snapshot, ledger.at) if new else []


def _starts(held: dict[Holder, dict[str, int]], snapshot: Snapshot, now: int) -> list[Start]:
    pods = {pod.key: pod for pod in snapshot.pods.objects}
    workloads = {key: found for found in snapshot.workloads for part in found.pod_sets for key in part.pod_keys}
    starts = []
    for holder, milli_by_pod in held.items():
        waits = [_waited(pods[key], workloads.get(key), now) for key in milli_by_pod]
        starts.append(Start(holder, sum(milli_by_pod.values()), min(waits)))
    return starts


def _waited(pod: Pod, workload: Workload | None, now: int) -> int:
    created = parse_timestamp(pod.metadata.creation_timestamp)
    since = (workload.queued_at or workload.created) if workload is not None else created
    started = parse_timestamp(pod.status.start_time)
    begun = started if since <= started <= now else now
    return max(0, begun - since) if since else 0
