"""The JSON form of a hold in the `Plan` document: why a workload waits and what would help.

Written and read by `model.decision_document`; `tools.reference` generates the documentation from these structs. Fields
are never removed. They contain the whole verdict, so that a plan can be read back.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.decision import Hold
from windlass.model.obstacle import Obstacle
from windlass.model.refusal import Refusal
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.model.verdict import NEVER_FITS, Change, Limit, MoveOffer, NearMiss, ReasonCount, Relief, Verdict


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the structs of the document."""


class HoldCount(Document, frozen=True):
    """How many nodes refuse for a reason."""

    code: str
    kube: str
    """kube-scheduler's wording."""
    nodes: int


class HoldNearMiss(Document, frozen=True):
    """A node that almost fits."""

    node: str
    reasons: tuple[str, ...]
    """kube-scheduler's wordings."""
    lacks: dict[str, str]
    """Resource → missing amount, in the resource's own unit."""
    free: dict[str, str]


class HoldLimit(Document, frozen=True):
    """A constraint that holds the workload."""

    kind: str
    """`quota`, `fragmentation`, `resource`, `topology`, `model`, `selector`, `rules`, `size`, `plan`, `order` or
    `object`."""
    text: str
    queue: str = ""
    """The queue whose quota or order is the limit (ClusterQueue, or `kai/` or `volcano/` and the Queue's name); of kind
    `object`, the queue that the workload names: its LocalQueue."""
    flavor: str = ""
    level: str = ""
    """Node label of the topology level that is the limit."""
    resource: str = ""
    needed: str = ""
    available: str = ""
    nodes: int | None = None
    """Nodes that refuse for it."""
    behind: str = ""
    """The workload or reservation that comes first."""


class HoldRelief(Document, frozen=True):
    """The running workloads whose end would free what it lacks."""

    workloads: int
    of: dict[str, int]
    """ClusterQueue, or `namespace/` for workloads without a queue → how many of them."""
    names: tuple[str, ...]
    at: str | None
    """When the last of them will have ended; null if unknown."""
    basis: str
    """What the time is derived from, or why it is unknown."""


class HoldChange(Document, frozen=True):
    """A smaller or looser request that would start now; the engine has tried it."""

    kind: str
    """`pods`, `gpus`, `share`, `cpu`, `memory`, `resource`, `topology`, `model`, `selector` or `toleration`."""
    text: str
    """Continues the sentence “it would start now”."""
    pod_set: str
    before: str
    after: str
    loss: int
    """Part of the request that is given up, in thousandths; the list is sorted by it."""
    public_text: str = ""
    """For the workload's owner, if the text has more than the owner may read."""


class HoldMove(Document, frozen=True):
    """A running pod which could be moved to make room."""

    pod: str
    from_: str = msgspec.field(name="from")
    to: str
    lost_milli_seconds: int
    """Milli-GPU-seconds of work that the move loses, restart included."""


class HoldEstimate(Document, frozen=True):
    """When it will start."""

    start: str | None
    """The planned start; null if none can be planned."""
    ahead: int
    """Workloads of its queue that come first."""
    basis: str
    """What the start is derived from, or why there is none."""
    outlook: str = ""
    """The same for a planned start; empty if none was planned."""


class HoldRefusal(Document, frozen=True):
    """A request that the API server refused and that is not tried again for a while."""

    kind: str
    """`eviction` or `bind`."""
    pod: str
    until: str
    """When it may be tried again."""
    uid: str
    """Of the pod."""
    node: str
    """Of a bind."""
    for_workload: str
    """Of an eviction: the preemptor."""
    budget: str
    """`namespace/name` of the PodDisruptionBudget that covers the pod, where one does."""
    message: str
    """The API server's message."""


class HoldObstacle(Document, frozen=True):
    """Why nothing is preempted for it."""

    kind: str
    """`stuck`, `unhealthy`, `policy`, `priority`, `minRunTime`, `protected` or `noGain`."""
    text: str
    public_text: str
    workloads: tuple[str, ...]
    """The workloads or pods concerned. Not public."""
    node: str
    """Of a stuck pod, or the first with unhealthy GPUs. Not public."""
    at: str | None
    """When the protection ends, or when a stuck pod should have ended."""


class HoldDocument(Document, frozen=True):
    """The decision that a workload waits."""

    decision: str
    """`hold`"""
    workload: str
    code: str
    """Root cause, from the closed list of codes."""
    message: str
    """The complete explanation."""
    public_message: str
    """The same for the workload's owner: without names of other tenants' workloads and without values of taints."""
    infeasible: bool
    """It would not fit even if nothing else ran."""
    limits: tuple[HoldLimit, ...]
    """Most important first. This and the following fields are filled for the first holds of a plan."""
    relief: HoldRelief | None
    changes: tuple[HoldChange, ...]
    """Smallest change first; empty if no single change helps."""
    moves: tuple[HoldMove, ...]
    estimate: HoldEstimate
    remedy: str
    """What would help if neither the end of other workloads nor a changed request does; else empty."""
    explained: bool = False
    """Limits, relief, changes and moves were computed."""
    nodes: int = 0
    """Nodes that were considered."""
    counts: tuple[HoldCount, ...] = ()
    """Number of refusing nodes by reason."""
    nearest: tuple[HoldNearMiss, ...] = ()
    """The nodes that lack least."""
    detail: str = ""
    """The reason of a hold that was decided without nodes: a gate, a claim, an object that can't be read."""
    refusals: tuple[HoldRefusal, ...] = ()
    """Recent refusals of the API server: its bind to a node, or an eviction for it."""
    obstacles: tuple[HoldObstacle, ...] = ()
    """Why nothing is preempted for it."""


STRUCTS = (
    HoldDocument,
    HoldLimit,
    HoldRelief,
    HoldChange,
    HoldMove,
    HoldEstimate,
    HoldCount,
    HoldNearMiss,
    HoldRefusal,
    HoldObstacle,
)


def hold_document(hold: Hold) -> dict[str, Any]:
    verdict = hold.verdict
    start = None if verdict.planned_start is None else format_timestamp(verdict.planned_start)
    made = HoldDocument(
        decision="hold",
        workload=hold.workload,
        code=verdict.code,
        message=verdict.message,
        public_message=verdict.public_message,
        infeasible=verdict.is_infeasible,
        limits=tuple(map(_limit, verdict.limits)),
        relief=None if verdict.relief is None else _relief(verdict.relief),
        changes=tuple(map(_change, verdict.changes)),
        moves=tuple(map(_move, verdict.moves)),
        estimate=HoldEstimate(start, verdict.ahead, _basis(verdict), verdict.outlook),
        remedy=verdict.remedy,
        explained=verdict.is_explained,
        nodes=verdict.nodes,
        counts=tuple(HoldCount(count.code, count.kube, count.nodes) for count in verdict.counts),
        nearest=tuple(HoldNearMiss(**msgspec.structs.asdict(miss)) for miss in verdict.nearest),
        detail=verdict.detail,
        refusals=tuple(_refusal(refusal) for refusal in verdict.refusals),
        obstacles=tuple(map(_obstacle, verdict.obstacles)),
    )
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return document


def parse_hold(document: dict[str, Any]) -> Hold:
    read = msgspec.convert(document, HoldDocument)
    estimate, relief = read.estimate, read.relief
    verdict = Verdict(
        code=read.code,
        nodes=read.nodes,
        counts=tuple(ReasonCount(count.code, count.kube, count.nodes) for count in read.counts),
        nearest=tuple(NearMiss(**msgspec.structs.asdict(miss)) for miss in read.nearest),
        detail=read.detail,
        planned_start=None if estimate.start is None else parse_timestamp(estimate.start),
        ahead=estimate.ahead,
        outlook=estimate.outlook,
        is_infeasible=read.infeasible,
        limits=tuple(Limit(**msgspec.structs.asdict(limit)) for limit in read.limits),
        relief=None if relief is None else _relief_of(relief),
        changes=tuple(Change(**msgspec.structs.asdict(change)) for change in read.changes),
        moves=tuple(MoveOffer(move.pod, move.from_, move.to, move.lost_milli_seconds) for move in read.moves),
        remedy=read.remedy,
        is_explained=read.explained,
        refusals=tuple(_refusal_of(refusal) for refusal in read.refusals),
        obstacles=tuple(map(_obstacle_of, read.obstacles)),
    )
    return Hold(read.workload, verdict)


def _refusal(refusal: Refusal) -> HoldRefusal:
    fields = msgspec.structs.asdict(refusal)
    return HoldRefusal(**{**fields, "until": format_timestamp(refusal.until)})


def _refusal_of(read: HoldRefusal) -> Refusal:
    fields = msgspec.structs.asdict(read)
    return Refusal(**{**fields, "until": parse_timestamp(read.until)})


def _obstacle(obstacle: Obstacle) -> HoldObstacle:
    at = None if obstacle.at is None else format_timestamp(obstacle.at)
    return HoldObstacle(**{**msgspec.structs.asdict(obstacle), "at": at})


def _obstacle_of(read: HoldObstacle) -> Obstacle:
    at = None if read.at is None else parse_timestamp(read.at)
    return Obstacle(**{**msgspec.structs.asdict(read), "at": at})


def _relief_of(read: HoldRelief) -> Relief:
    at = None if read.at is None else parse_timestamp(read.at)
    return Relief(read.workloads, read.of, read.names, at, read.basis)


def _basis(verdict: Verdict) -> str:
    """Why nothing was planned; empty only if the hold was not explained."""
    if verdict.outlook or not verdict.limits:
        return verdict.outlook
    if verdict.is_infeasible:
        return f"no planned start: {NEVER_FITS}"
    if verdict.relief is not None:
        return verdict.relief.basis
    return "no planned start: it is not known when what it waits for will end"


def _limit(limit: Limit) -> HoldLimit:
    return HoldLimit(**msgspec.structs.asdict(limit))


def _relief(relief: Relief) -> HoldRelief:
    at = None if relief.at is None else format_timestamp(relief.at)
    return HoldRelief(relief.workloads, relief.of, relief.names, at, relief.basis)


def _change(change: Change) -> HoldChange:
    return HoldChange(**msgspec.structs.asdict(change))


def _move(move: MoveOffer) -> HoldMove:
    return HoldMove(pod=move.pod, from_=move.from_node, to=move.to_node, lost_milli_seconds=move.lost_milli_seconds)
