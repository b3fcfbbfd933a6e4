"""Jobs that have begun to hold GPUs since the ledger before, how long they had waited, and when GPUs first worked.

`scheduler.ledger_recorder` shows it every ledger and keeps what it finds in the history, out of which the waiting
times of the page come. It goes by what pods hold, not by what was decided: a binding that failed is no start. A job
counts once, when its first pod has GPUs; one that begins and ends between two ledgers is not seen. All times are as
fine as the ledgers are frequent.
"""

from __future__ import annotations

import msgspec

from windlass.cluster.snapshot import Snapshot
from windlass.model.pod import Pod
from windlass.model.times import parse_timestamp
from windlass.model.workload import Workload
from windlass.telemetry.activity import COMPUTING, UNMEASURED
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import Ledger


class Start(msgspec.Struct, frozen=True):
    holder: Holder
    milli: int
    """Milli-GPU that it holds."""
    waited_seconds: int
    began_at: int = 0


QUEUE, PREPARE, LOAD = "queue", "prepare", "load"
PHASES = (QUEUE, PREPARE, LOAD)
"""From submission to the first GPU work: until it has GPUs; until its first container runs (images, volumes, init
containers); until a GPU of it computes (reading data and weights)."""
UNMEASURED_SECONDS = 900
"""A job that has run for so long and was never measured has a `load` that nobody knows."""
FORGOTTEN_SECONDS = 24 * 3600
MAX_WATCHED = 20_000


class FirstWork(msgspec.Struct, frozen=True):
    holder: Holder
    seconds: dict[str, int]
    """Phase → seconds; without `load` where nothing was measured."""


class _Watched(msgspec.Struct):
    waited: int
    bound_at: int
    running_at: int = 0


class FirstWorkFinder:
    """Follows each job from its start to the first ledger in which one of its GPUs computes. One that ends before, or
    has not computed within a day, has no first work."""

    def __init__(self) -> None:
        self._watched: dict[Holder, _Watched] = {}

    def find(self, snapshot: Snapshot, ledger: Ledger, starts: list[Start]) -> list[FirstWork]:
        for start in starts:
            if len(self._watched) < MAX_WATCHED:
                self._watched[start.holder] = _Watched(start.waited_seconds, start.began_at)
        if not self._watched:
            return []
        states: dict[Holder, set[str]] = {}
        pods: dict[Holder, set[str]] = {}
        for share in ledger.shares:
            if share.holder in self._watched:
                states.setdefault(share.holder, set()).add(share.state)
                pods.setdefault(share.holder, set()).add(share.pod)
        running = {pod.key for pod in snapshot.pods.objects if pod.status.phase == "Running"}
        found = []
        for holder, watched in list(self._watched.items()):
            if holder not in states or ledger.at - watched.bound_at > FORGOTTEN_SECONDS:
                del self._watched[holder]
                continue
            if not watched.running_at and pods[holder] & running:
                watched.running_at = ledger.at
            work = _first_work(holder, watched, states[holder], ledger.at)
            if work is not None:
                found.append(work)
                del self._watched[holder]
        return found


def _first_work(holder: Holder, watched: _Watched, states: set[str], now: int) -> FirstWork | None:
    if not watched.running_at:
        return None
    seconds = {QUEUE: watched.waited, PREPARE: max(0, watched.running_at - watched.bound_at)}
    if COMPUTING in states:
        return FirstWork(holder, {**seconds, LOAD: now - watched.running_at})
    if states == {UNMEASURED} and now - watched.running_at >= UNMEASURED_SECONDS:
        return FirstWork(holder, seconds)
    return None


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
        times = [_times(pods[key], workloads.get(key), now) for key in milli_by_pod]
        waited, begun = min(times)
        starts.append(Start(holder, sum(milli_by_pod.values()), waited, begun))
    return starts


def _times(pod: Pod, workload: Workload | None, now: int) -> tuple[int, int]:
    """(seconds that it waited, when it had a node)."""
    created = parse_timestamp(pod.metadata.creation_timestamp)
    since = (workload.queued_at or workload.created) if workload is not None else created
    started = parse_timestamp(pod.status.start_time)
    begun = started if since <= started <= now else now
    return (max(0, begun - since) if since else 0), begun
