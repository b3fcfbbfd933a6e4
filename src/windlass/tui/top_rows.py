"""The ledger as rows of `windlass top`: nodes with a mark for each GPU, queues, and jobs.

Sums of the ledger and nothing else, so that no number differs from that of `status`, `usage` or the page.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from windlass.telemetry.activity import COMPUTING, HELD_IDLE, SPINNING, UNMEASURED
from windlass.telemetry.holders import Holder
from windlass.telemetry.ledger import (
    ALLOCATED_STATES,
    FREE,
    IN_CHANGE,
    RESERVED,
    STRANDED,
    UNHEALTHY,
    GpuShare,
    Ledger,
)

MARKS = {
    COMPUTING: "█",
    SPINNING: "s",
    HELD_IDLE: "i",
    UNMEASURED: "?",
    FREE: "·",
    STRANDED: "-",
    RESERVED: "r",
    IN_CHANGE: "c",
    UNHEALTHY: "x",
}
"""State → what stands for a GPU in it: never its colour alone."""
WORDS = {
    COMPUTING: "computing",
    SPINNING: "spinning",
    HELD_IDLE: "held, idle",
    UNMEASURED: "not measured",
    FREE: "free",
    STRANDED: "stranded",
    RESERVED: "reserved",
    IN_CHANGE: "in change",
    UNHEALTHY: "unhealthy",
}


class Row(msgspec.Struct):
    """A node, a queue, a job, or a GPU of a job. Amounts are milli-GPUs."""

    name: str
    states: dict[str, int] = {}
    waiting: int = 0
    since: int = 0
    """Since when the first of what waits does, in seconds; 0 where that is not known."""
    cause: str = ""
    """Of what waits most."""
    model: str = ""
    marks: str = ""
    quota: int | None = None
    queue: str = ""
    user: str = ""
    team: str = ""
    pod: str = ""

    @property
    def held(self) -> int:
        return sum(self.states.get(state, 0) for state in ALLOCATED_STATES)

    @property
    def busy(self) -> int:
        return self.states.get(COMPUTING, 0) + self.states.get(SPINNING, 0)

    @property
    def idle(self) -> int:
        return self.states.get(HELD_IDLE, 0)

    @property
    def use(self) -> float | None:
        """Busy GPUs of those that are held and measured, 0 to 1."""
        measured = self.busy + self.idle
        return self.busy / measured if measured else None

    def add(self, state: str, milli: int) -> None:
        self.states[state] = self.states.get(state, 0) + milli


def node_rows(ledger: Ledger) -> list[Row]:
    rows: dict[str, Row] = {}
    strongest: dict[tuple[str, int], GpuShare] = {}
    models: dict[str, set[str]] = {}
    for share in ledger.shares:
        rows.setdefault(share.node, Row(share.node, {})).add(share.state, share.milli)
        models.setdefault(share.node, set()).add(share.model)
        known = strongest.get((share.node, share.index))
        if known is None or share.milli > known.milli:
            strongest[share.node, share.index] = share
    for (node, _), share in sorted(strongest.items()):
        rows[node].marks += MARKS[share.state]
    for node, row in rows.items():
        row.model = ", ".join(sorted(models[node]))
    return list(rows.values())


def queue_rows(ledger: Ledger) -> list[Row]:
    rows = _holder_rows(ledger, lambda holder: holder.queue)
    for queue, milli in ledger.quota_milli.items():
        rows.setdefault(queue, Row(queue, {})).quota = milli
    return list(rows.values())


def job_rows(ledger: Ledger, *, node: str = "", queue: str = "") -> list[Row]:
    """All jobs, or those on a node or of a queue."""
    rows = _holder_rows(ledger, lambda holder: holder.job)
    on_node = {share.holder.job for share in ledger.shares if share.holder is not None and share.node == node}
    return [row for row in rows.values() if (not node or row.name in on_node) and (not queue or row.queue == queue)]


def gpu_rows(ledger: Ledger, job: str) -> list[Row]:
    """The GPUs that a job holds, or its parts of them."""
    return [
        Row(
            f"{share.node}:{share.index}",
            {share.state: share.milli},
            model=share.model,
            marks=MARKS[share.state],
            pod=share.pod.partition("/")[2],
        )
        for share in ledger.shares
        if share.holder is not None and share.holder.job == job
    ]


def _holder_rows(ledger: Ledger, key: Callable[[Holder], str]) -> dict[str, Row]:
    rows: dict[str, Row] = {}
    causes: dict[str, dict[str, int]] = {}

    def row_of(holder: Holder) -> Row:
        name = key(holder)
        return rows.setdefault(name, Row(name, {}, queue=holder.queue, user=holder.user, team=holder.team))

    for share in ledger.shares:
        if share.holder is not None:
            row_of(share.holder).add(share.state, share.milli)
    for work in ledger.demand.waiting:
        row = row_of(work.holder)
        row.waiting += work.milli
        row.since = min(row.since or work.since, work.since or row.since)
        found = causes.setdefault(row.name, {})
        found[work.cause] = found.get(work.cause, 0) + work.milli
    for name, found in causes.items():
        rows[name].cause = max(found, key=lambda cause: (found[cause], cause))
    return rows
