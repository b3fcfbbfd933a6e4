"""One decision after another: what has changed, what to do about it, and that carried out.

    world.settle ─► store.snapshot ─► decide (in a thread) ─► assume ─► binder, evictor, conditions, admission

Owned by `scheduler.run`. It sleeps until something changes that could change a decision, waits a moment for more of the
kind, and decides on all of it at once. Nothing here looks at nodes or quotas: that is `decide`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from windlass.apply.binder import Binder, BindEnd, BindOutcome
from windlass.apply.conditions import ConditionWriter, Waiting
from windlass.apply.evictor import Evictor, Victim
from windlass.apply.volumes import provide_volumes, unbound_claims
from windlass.apply.words import GATED, WAITING_FOR_VICTIMS, condition_message, condition_reason
from windlass.cluster.delta import Assume, Forget
from windlass.cluster.snapshot import Snapshot
from windlass.engine import Memo, decide
from windlass.kube.backoff import Backoff
from windlass.kube.client import KubeClient
from windlass.kube.events import Event, Recorder, Regarding
from windlass.model.decision import Bind, Evict
from windlass.model.plan import Plan
from windlass.model.pod import Pod
from windlass.model.times import seconds_of
from windlass.planner import engine_config
from windlass.scheduler.admission import LiveAdmission
from windlass.scheduler.metrics import Metrics
from windlass.scheduler.options import Options
from windlass.scheduler.record import Record
from windlass.scheduler.shadow import Shadow
from windlass.scheduler.world import World

log = logging.getLogger(__name__)

TICK_SECONDS = 10.0
"""Time alone can change a decision (a grace, a planned start, a reservation), so it is looked at this often."""


class Loop:
    """The parts of one scheduler, and the cycle that drives them."""

    def __init__(
        self,
        client: KubeClient,
        options: Options,
        world: World,
        recorder: Recorder,
        metrics: Metrics,
        may_write: asyncio.Event | None = None,
    ) -> None:
        raise NotImplementedError
