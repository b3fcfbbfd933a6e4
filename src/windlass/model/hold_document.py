"""A hold as scripts read it: the fields of the `Plan` document that say why something waits and what would help.

`model.decision_document` writes and reads them, `cli.reference` documents them from these structs. Fields are only ever
added.
Everything that a verdict holds is in them, so that a plan can be read back; messages are made of the rest.
"""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.model.decision import Hold
from windlass.model.refusal import Refusal
from windlass.model.times import format_timestamp, parse_timestamp
from windlass.model.verdict import Change, Limit, MoveOffer, NearMiss, ReasonCount, Relief, Verdict


class Document(msgspec.Struct, frozen=True, rename="camel"):
    """Base of the parts."""


class HoldCount(Document, frozen=True):
    """So many nodes refuse for this reason."""

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
    """Resource → what it lacks, in the resource's own unit."""
    free: dict[str, str]


class HoldLimit(Document, frozen=True):
    """One thing that binds the workload."""

    kind: str
    """`quota`, `fragmentation`, `resource`, `topology`, `model`, `rules`, `size`, `plan`, `order` or `object`."""
    text: str
    queue: str = ""
    """ClusterQueue whose quota binds."""
    flavor: str = ""
    level: str = ""
    """Node label of the topology level that binds."""
    resource: str = ""
    needed: str = ""
    available: str = ""
    nodes: int | None = None
    """Nodes that refuse for it."""
    behind: str = ""
    """The workload or reservation that comes first."""


class HoldRelief(Document, frozen=True):
    """What would free what it lacks: the end of so many running workloads."""

    workloads: int
    of: dict[str, int]
    """ClusterQueue, or `namespace/` for work in no queue → how many of them."""
    names: tuple[str, ...]
    at: str | None
    """When the last of them will have ended; null where that is not known."""
    basis: str
    """What the time rests on, or why there is none."""


class HoldChange(Document, frozen=True):
    """A smaller or looser request that would start now; the engine has tried it."""

    kind: str
    """`pods`, `gpus`, `share`, `cpu`, `memory`, `resource`, `topology`, `model`, `selector` or `toleration`."""
    text: str
    """As it goes on from “it would start now”."""
    pod_set: str
    before: str
    after: str
    loss: int
    """How much of the request is given up, in thousandths: the list is in this order."""
    public_text: str = ""
    """For the workload's owner, where the text says more than that one may read."""


class HoldMove(Document, frozen=True):
    """A running pod whose move would help to make room."""

    pod: str
    from_: str = msgspec.field(name="from")
    to: str
    lost_milli_seconds: int
    """Milli-GPU-seconds of work that the move loses, restart included."""


class HoldEstimate(Document, frozen=True):
    """When it will start."""

    start: str | None
    """The planned start; null where none can be planned."""
    ahead: int
    """How many wait before it in its queue."""
    basis: str
    """What the start rests on, or why there is none."""
    outlook: str = ""
    """The same as far as it was planned; empty where nothing was."""


class HoldRefusal(Document, frozen=True):
    """Something that the API server refused, and that is not tried again for a while."""

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
    """Of an eviction: what would have had the room."""
    budget: str
    """`namespace/name` of the PodDisruptionBudget that covers the pod, where one does."""
    message: str
    """The API server's own words."""


class HoldDocument(Document, frozen=True):
    """A decision to let something wait."""

    decision: str
    """`hold`"""
    workload: str
    code: str
    """From the closed list of root causes: what binds it most."""
    message: str
    """Everything, in one sentence."""
    public_message: str
    """The same for the workload's owner: without names of others' workloads and without values of taints."""
    infeasible: bool
    """It would not fit even if nothing else ran."""
    limits: tuple[HoldLimit, ...]
    """What binds it; the first binds most. Filled for the first holds of a plan, as all that follows."""
    relief: HoldRelief | None
    changes: tuple[HoldChange, ...]
    """The smallest change first; empty where no single change was found that helps."""
    moves: tuple[HoldMove, ...]
    estimate: HoldEstimate
    remedy: str
    """What would lift it where neither the end of others nor another request does; else empty."""
    explained: bool = False
    """What binds it and what would help was worked out: for the first holds of a plan."""
    nodes: int = 0
    """Nodes that were looked at."""
    counts: tuple[HoldCount, ...] = ()
    """By reason, how many of them refuse."""
    nearest: tuple[HoldNearMiss, ...] = ()
    """Those that come nearest."""
    detail: str = ""
    """What holds it where no node was looked at: a gate, a claim, an object that can't be read."""
    refusals: tuple[HoldRefusal, ...] = ()
    """What the API server has just refused: its bind to a node, or an eviction that would have made room for it."""


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
    )
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(made))
    return document


def parse_hold(document: dict[str, Any]) -> Hold:
    """The hold that was written."""
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
    )
    return Hold(read.workload, verdict)


def _refusal(refusal: Refusal) -> HoldRefusal:
    fields = msgspec.structs.asdict(refusal)
    return HoldRefusal(**{**fields, "until": format_timestamp(refusal.until)})


def _refusal_of(read: HoldRefusal) -> Refusal:
    fields = msgspec.structs.asdict(read)
    return Refusal(**{**fields, "until": parse_timestamp(read.until)})


def _relief_of(read: HoldRelief) -> Relief:
    at = None if read.at is None else parse_timestamp(read.at)
    return Relief(read.workloads, read.of, read.names, at, read.basis)


def _basis(verdict: Verdict) -> str:
    """Where nothing was planned, why; empty only where nothing was worked out."""
    if verdict.outlook or not verdict.limits:
        return verdict.outlook
    if verdict.is_infeasible:
        return "no planned start: it would not fit even if nothing else ran"
    if verdict.relief is not None:
        return verdict.relief.basis
    return "no planned start: what holds it is not known to end with time"


def _limit(limit: Limit) -> HoldLimit:
    return HoldLimit(**msgspec.structs.asdict(limit))


def _relief(relief: Relief) -> HoldRelief:
    at = None if relief.at is None else format_timestamp(relief.at)
    return HoldRelief(relief.workloads, relief.of, relief.names, at, relief.basis)


def _change(change: Change) -> HoldChange:
    return HoldChange(**msgspec.structs.asdict(change))


def _move(move: MoveOffer) -> HoldMove:
    return HoldMove(
        pod=move.pod, from_=move.from_node, to=move.to_node, lost_milli_seconds=move.lost_milli_seconds
    )
