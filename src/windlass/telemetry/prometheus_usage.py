"""`Usage` out of a Prometheus: dcgm-exporter's metrics, joined with kube-state-metrics' owners and labels of pods.

`windlass usage --prometheus` calls it. A day at a time, in which every sum is computed by Prometheus itself. A GPU
counts as held while its memory is reported with a pod, as measured while its utilisation is, and as busy at 1 % and
more. It needs no part of Windlass in the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING, UNMEASURED
from windlass.telemetry.gpu_shares import WHOLE_MILLI, profile_milli
from windlass.telemetry.holders import NO_QUEUE, UNKNOWN_USER
from windlass.telemetry.ledger import FREE
from windlass.telemetry.prometheus import Prometheus, PromSample
from windlass.telemetry.usage import Usage, UsageKey

STEP_SECONDS = 300
CHUNK_SECONDS = 86_400
PRESENT, BUSY, ENGINE, SM = (
    "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_UTIL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "DCGM_FI_PROF_SM_ACTIVE",
)
QUEUE_LABEL, TEAM_LABEL, USER_LABEL = (
    "label_kueue_x_k8s_io_queue_name",
    "label_windlass_dev_team",
    "label_windlass_dev_user",
)
NO_SPINNING_NOTE = "no GPU reports SM activity (DCGM_FI_PROF_SM_ACTIVE), so GPUs that only spin count as computing"
FREE_NOTE = "GPUs without a pod count as free: stranded, unhealthy and cordoned ones can't be told from metrics"

PodKey = tuple[str, str]
Amounts = dict[tuple[str, str, str], int]
"""(namespace, pod, model) → milli-GPU-seconds."""


def read_prometheus_usage(prometheus: Prometheus, start: int, end: int) -> Usage:
    usage = Usage(start, end, notes=[FREE_NOTE])
    names = PodLabels(prometheus, end)
    for first, last in _chunks(start, end):
        _Day(prometheus, names, first, last).add_to(usage)
    if not prometheus.query(f"count({SM})", end):
        usage.notes.append(NO_SPINNING_NOTE)
    return usage


class PodLabels:
    """`exported_pod` where the scrape config does not honour the exporter's labels."""

    def __init__(self, prometheus: Prometheus, at: int) -> None:
        found = prometheus.query(f'count(last_over_time({PRESENT}{{exported_pod!=""}}[1d]))', at)
        prefix = "exported_" if found and found[0].value else ""
        self.pod, self.namespace = f"{prefix}pod", f"{prefix}namespace"


class _Day:
    """One range of time of at most a day."""

    def __init__(self, prometheus: Prometheus, names: PodLabels, start: int, end: int) -> None:
        self._prometheus, self._names, self._start, self._end = prometheus, names, start, end
        self._keys: dict[PodKey, UsageKey] = {}

    def add_to(self, usage: Usage) -> None:
        held = self._sum(f"{self._devices(PRESENT)} >= bool 0")
        measured = self._sum(f"({self._devices(BUSY)} >= bool 0) or ({self._devices(ENGINE)} >= bool 0)")
        busy = self._sum(f"({self._devices(BUSY)} >= bool 1) or ({self._devices(ENGINE)} >= bool 0.01)")
        spinning = self._sum(f"(({self._devices(BUSY)} >= bool 95) * ({self._devices(SM)} <= bool 0.02))")
        self._read_pods()
        for place, total in held.items():
            if not place[1]:
                usage.add(UsageKey(model=place[2]), FREE, total)
                continue
            key = self._key(place)
            known = min(total, measured.get(place, 0))
            working = min(known, busy.get(place, 0))
            waiting = min(working, spinning.get(place, 0))
            parts = {COMPUTING: working - waiting, SPINNING: waiting, HELD_IDLE: known - working}
            for state, amount in {**parts, UNMEASURED: total - known}.items():
                if amount:
                    usage.add(key, state, amount)
        covered = self._query(f"sum_over_time((count({PRESENT}) > bool 0)[{self._window}])")
        usage.covered_seconds += round(sum(sample.value for sample in covered) * STEP_SECONDS)

    @property
    def _window(self) -> str:
        return f"{self._end - self._start}s:{STEP_SECONDS}s"

    def _devices(self, metric: str) -> str:
        """Once for every GPU, or MIG instance, and pod: several containers make several series."""
        labels = ("UUID", "GPU_I_ID", "GPU_I_PROFILE", "modelName", self._names.namespace, self._names.pod)
        return f"max by ({', '.join(labels)}) ({metric})"

    def _sum(self, expression: str) -> Amounts:
        """Milli-GPU-seconds in which the expression was 1."""
        by = f"modelName, GPU_I_PROFILE, {self._names.namespace}, {self._names.pod}"
        found: Amounts = {}
        for sample in self._query(f"sum by ({by}) (sum_over_time(({expression})[{self._window}]))"):
            labels = sample.labels
            model = labels.get("modelName", "").replace(" ", "-")
            place = (labels.get(self._names.namespace, ""), labels.get(self._names.pod, ""), model)
            profile = labels.get("GPU_I_PROFILE", "")
            milli = profile_milli(profile) if profile else WHOLE_MILLI
            found[place] = found.get(place, 0) + round(sample.value) * STEP_SECONDS * milli
        return found

    def _query(self, expression: str) -> list[PromSample]:
        # A subquery's window includes its end: a moment earlier, so that no sample counts in two days.
        return self._prometheus.query(expression, self._end - 1)

    def _read_pods(self) -> None:
        """Owner, queue, team and user of pods, where kube-state-metrics tells them."""
        span = f"[{self._end - self._start}s]"
        for sample in self._query(
            f"max by (namespace, pod, owner_kind, owner_name) (last_over_time(kube_pod_owner{span}))"
        ):
            labels = sample.labels
            pod = (labels.get("namespace", ""), labels.get("pod", ""))
            kind, name = labels.get("owner_kind", ""), labels.get("owner_name", "")
            if name and name != "<none>":
                self._keys[pod] = UsageKey(pod[0], NO_QUEUE, UNKNOWN_USER, f"{kind} {pod[0]}/{name}")
        by = f"namespace, pod, {QUEUE_LABEL}, {TEAM_LABEL}, {USER_LABEL}"
        for sample in self._query(f"max by ({by}) (last_over_time(kube_pod_labels{span}))"):
            labels = sample.labels
            pod = (labels.get("namespace", ""), labels.get("pod", ""))
            known = self._keys.get(pod) or _unknown(pod)
            queue = labels.get(QUEUE_LABEL, "")
            self._keys[pod] = UsageKey(
                labels.get(TEAM_LABEL) or known.team,
                f"{pod[0]}/{queue}" if queue else known.queue,
                labels.get(USER_LABEL) or known.user,
                known.job,
            )

    def _key(self, place: tuple[str, str, str]) -> UsageKey:
        namespace, pod, model = place
        known = self._keys.get((namespace, pod)) or _unknown((namespace, pod))
        return UsageKey(known.team, known.queue, known.user, known.job, model)


def _unknown(pod: PodKey) -> UsageKey:
    return UsageKey(pod[0], NO_QUEUE, UNKNOWN_USER, f"Pod {pod[0]}/{pod[1]}")


def _chunks(start: int, end: int) -> Iterator[tuple[int, int]]:
    """Ranges that end at the ends of days."""
    while start < end:
        last = min(end, (start // CHUNK_SECONDS + 1) * CHUNK_SECONDS)
        yield start, last
        start = last
