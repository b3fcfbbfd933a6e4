"""Why a workload is not placed, as counted by the pass that decided it.

`placement` fills it, `message` formats it; `plan`, `simulate --explain`, conditions and events show this message. `why`
takes the code from the verdict and writes its own sentence. Limits, relief, changes and moves are added by
`placement.explain`, for the first holds of a plan.

A verdict has two messages. `message` is for the operator and complete. `public_message` is for the workload's owner: it
has only the workload's own requests, sums over nodes, and its own queue; never names of other tenants' workloads, pods
or queues, and never a taint's value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from windlass.model.names.nvidia import GPU_RESOURCE
from windlass.model.obstacle import Obstacle
from windlass.model.reasons import WHY_GPU_DEVICE_ROOM, insufficient_reason, reason_of_bit
from windlass.model.refusal import Refusal
from windlass.model.times import format_timestamp

MAX_NAMED = 3
NEVER_FITS = "it would not fit even if nothing else ran"
_TOO_FEW_GPUS = insufficient_reason(GPU_RESOURCE).kube_words
_NO_DEVICE_ROOM = reason_of_bit(WHY_GPU_DEVICE_ROOM.bit_length() - 1).kube_words
LIMIT_KINDS_SHOWN_FIRST = ("selector", "fragmentation", "model", "quota", "topology")
"""Kinds of limits that the counts of nodes by reason don't show."""

UNEXPLAINED_PUBLIC_MESSAGE_BY_CODE = {
    "KUEUE_QUOTA_INSUFFICIENT": "its queue has too little quota left; `windlass why` has the numbers",
    "KUEUE_QUOTA_MISCONFIGURED": "its queue has no quota for a resource that it asks for",
    "KUEUE_QUEUE_MISSING": "its queue is missing, inactive or stopped",
    "KUEUE_FLAVOR_MISMATCH": "its pods can use no flavor of its queue (taints, node selector or topology)",
    "KUEUE_TOPOLOGY_NOFIT": "no domain of the requested topology level has room for all its pods",
    "QUEUE_BEHIND_HEAD": "a workload ahead of it in its StrictFIFO queue waits and has to start first",
    "RESERVED_FOR_OTHERS": "room is free, but kept for a planned start or a reservation",
    "REQUEST_EXCEEDS_CLUSTER": "it requests more than the nodes that it may use have when they are empty",
    "GPU_FULL": "too few GPUs are free; `windlass why` has the numbers",
    "GPU_FRAGMENTED": "enough GPUs are free in total, but too few on one node; `windlass why` has the numbers",
    "TOPOLOGY_MANAGER_REFUSED": "too few free GPUs are on one NUMA node, as the kubelet demands",
    "CPU_MEM_INSUFFICIENT": "too little CPU or memory is free; `windlass why` has the numbers",
    "ADMISSION_DEFERRED": "its queue has not considered it yet: pods of a workload admitted before it are not ready, "
    "or the decision ended before its turn",
}
"""By code, the public message of a verdict that was not explained."""
CODES_WITH_PUBLIC_DETAIL = frozenset(
    {"GANG_INCOMPLETE", "INVALID_OBJECT", "NOT_IMPLEMENTED", "POLICY_DENIED", "SCHEDULING_GATED"}
    | {"DURATION_EXCEEDED", "JOB_SUSPENDED", "REQUEUE_BACKOFF", "RESOURCE_QUOTA_EXCEEDED", "STORAGE_INSUFFICIENT"}
    | {"FRACTIONAL_GPU_REQUEST", "REQUESTS_NE_LIMITS", "INTERNAL_ERROR", "QUEUE_LIMIT_REACHED"}
)
"""Codes whose detail names only the workload's own pods, claims, groups and namespace, so that it is public."""


class ReasonCount(msgspec.Struct, frozen=True, gc=False):
    """How many nodes refuse for a reason; `kube` is kube-scheduler's wording of it."""

    code: str
    kube: str
    nodes: int


class NearMiss(msgspec.Struct, frozen=True, gc=False):
    """A node that almost fits: what it lacks, per resource, in the resource's own unit."""

    node: str
    reasons: tuple[str, ...]
    """kube-scheduler's wordings."""
    lacks: dict[str, str]
    free: dict[str, str]


class Limit(msgspec.Struct, frozen=True, gc=False):
    """A constraint that holds the workload: a resource of which there is too little, or work that comes first."""

    kind: str
    """`quota`, `fragmentation`, `resource`, `topology`, `model`, `selector`, `rules`, `size`, `plan`, `order` or
    `object`."""
    text: str
    """In words that the workload's owner may read."""
    queue: str = ""
    """The queue whose quota or order is the limit (ClusterQueue, or `kai/` or `volcano/` and the Queue's name); of kind
    `object`, the queue that the workload names."""
    flavor: str = ""
    level: str = ""
    """Node label of the topology level."""
    resource: str = ""
    needed: str = ""
    """Amounts as Kubernetes prints them."""
    available: str = ""
    nodes: int | None = None
    """Nodes that refuse for it."""
    behind: str = ""
    """The workload or reservation that comes first. Not public."""


class Relief(msgspec.Struct, frozen=True, gc=False):
    """The running workloads whose end would free what it lacks."""

    workloads: int
    of: dict[str, int] = {}
    """ClusterQueue, or `namespace/` where they are in no queue → how many of them. Not public."""
    names: tuple[str, ...] = ()
    """Not public."""
    at: int | None = None
    """When the last of them will have ended, in seconds; None where that is not known."""
    basis: str = ""
    """What the time is derived from, or why it is unknown."""

    @property
    def public_text(self) -> str:
        verb = "ends" if self.workloads == 1 else "end"
        when = f", at {format_timestamp(self.at)}" if self.at is not None else ""
        basis = f" ({self.basis})" if self.basis else ""
        return f"it could start once {_count(self.workloads, 'running workload')} {verb}{when}{basis}"

    @property
    def text(self) -> str:
        more = len(self.names) - MAX_NAMED
        names = ", ".join(self.names[:MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        return f"{self.public_text}: {names}" if names else self.public_text


class Change(msgspec.Struct, frozen=True, gc=False):
    """A smaller or looser request that would start now."""

    kind: str
    """`pods`, `gpus`, `share`, `cpu`, `memory`, `resource`, `topology`, `model`, `selector` or `toleration`."""
    text: str
    """Continues the sentence “it would start now”."""
    pod_set: str = ""
    before: str = ""
    after: str = ""
    loss: int = 0
    """Part of the request that is given up, in thousandths; the sort key. Changed conditions count little."""
    public_text: str = ""
    """If the text has more than the owner may read."""


class MoveOffer(msgspec.Struct, frozen=True, gc=False):
    """A running pod that could be moved elsewhere to make room. Not public."""

    pod: str
    from_node: str
    to_node: str
    lost_milli_seconds: int = 0
    """Milli-GPU-seconds of work that the move loses, restart included."""


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Counts of nodes by reason and the nearest misses; if explained, also what would help."""

    code: str
    """Code of the main reason, from the closed list of `model.reasons`."""
    nodes: int = 0
    counts: tuple[ReasonCount, ...] = ()
    nearest: tuple[NearMiss, ...] = ()
    detail: str = ""
    """For holds that are decided without nodes (gates, claims, an object that can't be read)."""
    planned_start: int | None = None
    """When it is planned to start, in seconds; None where no plan can be made."""
    ahead: int = 0
    """Workloads of its queue that come first."""
    outlook: str = ""
    """The planned start and what it is derived from, or why there is none."""
    is_infeasible: bool = False
    """It would not fit even if nothing else ran."""
    limits: tuple[Limit, ...] = ()
    """Most important first."""
    relief: Relief | None = None
    changes: tuple[Change, ...] = ()
    """Changes of its own request with which it would start now, smallest first."""
    moves: tuple[MoveOffer, ...] = ()
    """Moves of running pods that would make room, the cheapest found."""
    refusals: tuple[Refusal, ...] = ()
    """Recent refusals of the API server: its bind to a node, or an eviction for it."""
    obstacles: tuple[Obstacle, ...] = ()
    """Why nothing makes room for it."""
    remedy: str = ""
    """What would help where neither the end of other workloads nor a changed request does."""
    is_explained: bool = False
    """Limits, relief, changes and moves were computed, as for the first holds of a plan."""

    @property
    def message(self) -> str:
        """What holds it, what is planned and what would help, separated by semicolons."""
        return join_sentences(self.sentences)

    @property
    def sentences(self) -> list[str]:
        """The parts of the message, what holds it first."""
        # The detail of an infeasible workload names its topology level already.
        first = LIMIT_KINDS_SHOWN_FIRST if not (self.is_infeasible and self.detail) else LIMIT_KINDS_SHOWN_FIRST[:-1]
        limits = [limit.text for limit in self.limits if limit.kind in first]
        # An infeasible workload never starts, so that its outlook says nothing.
        outlook = "" if self.is_infeasible and self.planned_start is None else self.outlook
        parts = [*limits, self.detail or self.kube_message, outlook, *self._help(is_public=False)]
        return list(dict.fromkeys(part for part in parts if part))  # a limit may be the detail, too

    @property
    def public_message(self) -> str:
        """The message for the workload's owner, without anything about other tenants."""
        limits = [limit.text for limit in self.limits]
        if not limits:
            limits = [self._counted if self.counts or not self.detail else self.public_detail]
        parts = [*limits, self._public_outlook, *self._help(is_public=True)]
        return join_sentences(part for part in parts if part)

    @property
    def public_detail(self) -> str:
        """The detail, or what may be said instead where it could name other tenants."""
        if self.detail and self.code in CODES_WITH_PUBLIC_DETAIL:
            return self.detail
        return UNEXPLAINED_PUBLIC_MESSAGE_BY_CODE.get(self.code, f"it waits ({self.code})")

    @property
    def kube_message(self) -> str:
        """kube-scheduler's own form: `0/N nodes are available: …`."""
        return f"0/{self.nodes} nodes are available: {self.detail}." if self.detail else self._counted

    @property
    def _counted(self) -> str:
        if not self.nodes:
            return "no nodes available to schedule pods"
        words = format_reason_counts((count.kube, count.nodes) for count in self.counts)
        return f"0/{self.nodes} nodes are available: {words}."

    @property
    def _public_outlook(self) -> str:
        verb = "waits" if self.ahead == 1 else "wait"
        waits = f"{_count(self.ahead, 'workload')} of its queue {verb} ahead of it" if self.ahead else ""
        if self.planned_start is None:
            return waits
        start = f"planned to start at {format_timestamp(self.planned_start)}"
        return f"{start}; {waits}" if waits else start

    def _help(self, *, is_public: bool) -> Iterator[str]:
        refusals = dict.fromkeys(refusal.public_text if is_public else refusal.text for refusal in self.refusals)
        yield from list(refusals)[:MAX_NAMED]
        obstacles = dict.fromkeys(item.public_text if is_public else item.text for item in self.obstacles)
        yield from list(obstacles)[:MAX_NAMED]
        if self.is_infeasible:
            yield NEVER_FITS
        # With a planned start, the outlook has the relief already.
        if self.relief is not None and self.planned_start is None:
            yield self.relief.public_text if is_public else self.relief.text
        if self.moves and not is_public:
            yield _moves_text(self.moves)
        if self.changes:
            change = self.changes[0]
            yield f"it would start now {change.public_text or change.text if is_public else change.text}"
        if self.remedy:
            yield f"what would help: {self.remedy}"


def format_reason_counts(counts: Iterable[tuple[str, int]]) -> str:
    """Reasons with their numbers of nodes, as kube-scheduler lists them. “No GPUs with room for the share” is left out
    if at least as many nodes have too few GPUs."""
    by_reason = dict(counts)
    if by_reason.get(_TOO_FEW_GPUS, 0) >= by_reason.get(_NO_DEVICE_ROOM, 0):
        by_reason.pop(_NO_DEVICE_ROOM, None)
    return ", ".join(sorted(f"{nodes} {kube}" for kube, nodes in by_reason.items()))


def join_sentences(parts: Iterable[str]) -> str:
    """Separated by semicolons. kube-scheduler's form ends with a full stop, which only the last part keeps."""
    *first, last = parts
    return "; ".join([*(part.removesuffix(".") for part in first), last])


def _moves_text(moves: tuple[MoveOffer, ...]) -> str:
    words = [f"{move.pod} from {move.from_node} to {move.to_node}" for move in moves[:MAX_NAMED]]
    more = f" and {len(moves) - MAX_NAMED} more" if len(moves) > MAX_NAMED else ""
    hours = sum(move.lost_milli_seconds for move in moves) / 3_600_000
    return f"moving {', '.join(words)}{more} would make room (and lose {hours:.1f} GPU-hours of work)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
